//! `gmm predict`, `score`, `sample`, `generate`, `convert`, `show`, `doctor`, `completions`, `man`.

use gmm_tests::{Folder, close, data, golden, numbers};

/// The commands that the help lists.
const COMMANDS: [&str; 22] = [
    "fit",
    "predict",
    "score",
    "pass",
    "add",
    "maximise",
    "loglik",
    "matmul",
    "mcmc",
    "classify",
    "regress",
    "outliers",
    "sample",
    "generate",
    "select",
    "plot",
    "report",
    "convert",
    "show",
    "bench",
    "doctor",
    "completions",
];

/// A folder with a model of Old Faithful's two components in `m.json`.
fn fitted() -> Folder {
    let folder = Folder::new();
    folder.gmm(&format!("fit {} -k 2 -o m.json", data("old_faithful.csv"))).ok();
    folder
}

/// The rows of a csv text without its header.
fn rows(text: &str) -> Vec<Vec<f64>> {
    let lines = text.lines().skip_while(|line| line.contains(|c: char| c.is_alphabetic() && c != 'e'));
    lines.map(|line| line.split(',').map(|v| v.parse().expect("a number")).collect()).collect()
}

#[test]
fn labels_and_responsibilities_agree() {
    let folder = fitted();
    let x = data("old_faithful.csv");
    let labels = folder.gmm(&format!("predict m.json {x}")).ok().stdout;
    assert_eq!(labels.lines().next(), Some("label"));
    let labels: Vec<usize> = labels.lines().skip(1).map(|v| v.parse().unwrap()).collect();
    let proba = folder.gmm(&format!("predict m.json {x} --proba")).ok().stdout;
    assert_eq!(proba.lines().next(), Some("proba_0,proba_1"));
    let proba: Vec<Vec<f64>> =
        proba.lines().skip(1).map(|line| line.split(',').map(|v| v.parse().unwrap()).collect()).collect();
    assert_eq!((labels.len(), proba.len()), (272, 272));
    for (label, row) in labels.iter().zip(&proba) {
        close(&[row.iter().sum()], &[1.0], 1e-12);
        assert!(row[*label] >= row[1 - *label]);
    }
    let weight = labels.iter().filter(|&&l| l == 0).count() as f64 / 272.0;
    close(&[weight], &numbers(&folder.json("m.json")["weights"])[..1], 0.02);
    // Files of all formats have the same contents.
    for name in ["y.csv", "y.tsv", "y.npy", "y.parquet", "y.arrow"] {
        folder.gmm(&format!("predict m.json {x} --proba -o {name}")).ok();
        let back = folder.gmm(&format!("convert {name} -")).ok().stdout;
        assert_eq!(rows(&back), proba, "{name}");
    }
    folder.gmm(&format!("predict m.json {x} -o y.npy")).ok();
    assert!(folder.read("y.npy").windows(3).any(|w| w == b"<i8"));
}

#[test]
fn log_densities_sum_to_the_score() {
    let folder = fitted();
    let x = data("old_faithful.csv");
    let each = folder.gmm(&format!("score m.json {x} --per-row")).ok().stdout;
    assert_eq!(each.lines().next(), Some("log_density"));
    let sum: f64 = each.lines().skip(1).map(|v| v.parse::<f64>().unwrap()).sum();
    let run = folder.gmm(&format!("score m.json {x} --per-row -o y.npy --json")).ok();
    close(&[sum], &numbers(&run.json()["log_likelihood"]), 1e-12);
    let text = folder.gmm(&format!("score m.json {x}")).ok().stdout;
    insta::assert_snapshot!(text);
    folder.refuses(&format!("score m.json {x} --per-row --json"), 2, &["--per-row", "-o"]);
}

#[test]
fn samples_begin_alike_and_look_like_their_model() {
    let folder = fitted();
    let short = folder.gmm("sample m.json -n 10 --seed 4").ok().stdout;
    let long = folder.gmm("sample m.json -n 40000 --seed 4").ok().stdout;
    assert!(long.starts_with(&short));
    assert_eq!(long.lines().next(), Some("eruptions,waiting"));
    assert_eq!(long.lines().count(), 40_001);
    folder.gmm("sample m.json -n 4e4 --seed 4 -o y.csv").ok();
    assert_eq!(folder.text("y.csv"), long);
    folder.gmm("fit y.csv -k 2 -o again.json").ok();
    let sorted = |name: &str| {
        let mut means = numbers(&folder.json(name)["means"]);
        means.sort_by(f64::total_cmp);
        means
    };
    close(&sorted("again.json"), &sorted("m.json"), 0.02);
    assert_ne!(folder.gmm("sample m.json -n 10 --seed 5").ok().stdout, short);
}

#[test]
fn synthetic_rows_come_with_their_truth() {
    let folder = Folder::new();
    for kind in ["full", "tied", "diag", "spherical"] {
        let options = format!("-n 3000 -k 3 -d 2 --covariance {kind} --separation 4 --seed 8");
        folder.gmm(&format!("generate {options} -o x.parquet --truth truth.json")).ok();
        let truth = folder.json("truth.json");
        assert_eq!((&truth["covariance_type"], &truth["fit"]), (&kind.into(), &serde_json::Value::Null));
        folder.gmm(&format!("fit x.parquet -k 3 --covariance {kind} --n-init 5 -o m.json")).ok();
        let likelihood = |model: &str| {
            let run = folder.gmm(&format!("score {model} x.parquet --json")).ok();
            run.json()["mean_log_likelihood"].as_f64().unwrap()
        };
        // The fit maximises the likelihood; the true parameters are near it.
        let gain = likelihood("m.json") - likelihood("truth.json");
        assert!((0.0..0.02).contains(&gain), "{kind}: {gain}");
        let again = folder.gmm(&format!("generate {options} -o -")).ok().stdout;
        assert_eq!(folder.gmm("convert x.parquet -").ok().stdout, again);
    }
}

#[test]
fn the_environment_says_how_many_threads_there_are_unless_the_option_does() {
    let folder = Folder::new();
    let fit = |environment: &str, option: &str| {
        let x = data("old_faithful.csv");
        let run = folder.bash(&format!("{environment} exec $GMM -v fit {x} -k 2 --device cpu -o m.json {option}")).ok();
        let at = run.stderr.find(" thread").unwrap_or_else(|| panic!("{}", run.stderr));
        run.stderr[..at].rsplit(['(', ' ']).next().unwrap().parse::<usize>().unwrap()
    };
    assert_eq!(fit("OMP_NUM_THREADS=3", ""), 3);
    assert_eq!(fit("OMP_NUM_THREADS=3,2", ""), 3);
    assert_eq!(fit("RAYON_NUM_THREADS=5 OMP_NUM_THREADS=3", ""), 5);
    assert_eq!(fit("RAYON_NUM_THREADS=5 OMP_NUM_THREADS=3", "--threads 2"), 2);
    assert_eq!(fit("RAYON_NUM_THREADS=many OMP_NUM_THREADS=3", ""), 3);
    assert_eq!(fit("RAYON_NUM_THREADS=100000", ""), 1024);
    assert_eq!(fit("OMP_NUM_THREADS=100000", ""), 1024);
    folder.bash("RAYON_NUM_THREADS=100000 $GMM generate -n 200000 -k 3 -d 2 -o x.npy").ok();
}

#[test]
fn rows_do_not_depend_on_threads_nor_on_how_many_follow() {
    let folder = Folder::new();
    for extension in ["npy", "parquet", "csv"] {
        // A chunk has at most 65536 rows.
        for (threads, n, name) in [(1, 70_000, "a"), (3, 70_000, "b"), (2, 66_000, "c")] {
            let command = format!("generate -n {n} -k 3 -d 2 --seed 5 -o {name}.{extension} --truth {name}.json");
            folder.bash(&format!("RAYON_NUM_THREADS={threads} exec $GMM {command}")).ok();
        }
        assert!(folder.read(&format!("a.{extension}")) == folder.read(&format!("b.{extension}")));
        assert_eq!(folder.read("a.json"), folder.read("c.json"));
    }
    assert!(folder.text("a.csv").starts_with(&folder.text("c.csv")));
    // The header has 128 bytes.
    assert!(folder.read("a.npy")[128..].starts_with(&folder.read("c.npy")[128..]));
}

#[test]
fn tables_go_through_every_format_and_back() {
    let folder = Folder::new();
    std::fs::copy(data("wine.csv"), folder.path("x.csv")).unwrap();
    folder.gmm("convert x.csv a.parquet").ok();
    folder.gmm("convert a.parquet b.arrow").ok();
    folder.gmm("convert b.arrow c.feather").ok();
    folder.gmm("convert c.feather d.tsv").ok();
    folder.gmm("convert d.tsv e.csv").ok();
    folder.gmm("convert e.csv f.npy").ok();
    folder.gmm("convert f.npy g.parquet").ok();
    folder.gmm("convert g.parquet h.csv").ok();
    let expected = rows(&folder.text("x.csv"));
    assert_eq!(rows(&folder.text("e.csv")), expected);
    // npy stores no column names.
    assert_eq!(rows(&folder.gmm("convert f.npy -").ok().stdout), expected);
    assert_eq!(folder.text("e.csv").lines().next(), folder.text("x.csv").lines().next());
}

#[test]
fn models_go_from_json_to_safetensors_and_back() {
    let folder = fitted();
    folder.gmm("convert m.json a.safetensors").ok();
    folder.gmm("convert a.safetensors b.json").ok();
    assert!(folder.read("m.json") == folder.read("b.json"));
    assert_eq!(folder.gmm("convert a.safetensors -").ok().stdout, folder.text("m.json"));
    let show = |name: &str| folder.gmm(&format!("show {name}")).ok().stdout;
    assert_eq!(show("a.safetensors"), show("m.json"));
    // A model written by another program.
    folder.gmm(&format!("convert {} c.json", golden("model.safetensors"))).ok();
    folder.gmm(&format!("show {}", golden("model.json"))).ok();
}

#[test]
fn doctor_plans_a_shape_without_a_gpu() {
    let folder = Folder::new();
    let text = folder.gmm("doctor --plan -k 8 -d 13 --covariance full").ok().stdout;
    assert!(text.contains("as on an NVIDIA H200") && text.contains("* fused: one kernel a pass"), "{text}");
    assert!(text.contains("full f32") && text.contains("full f64") && !text.contains("diag"), "{text}");
    for (wrong, missing) in [("doctor --plan -k 8", "-d <D>"), ("doctor -k 8 -d 3", "--plan")] {
        let run = folder.gmm(wrong);
        assert!(run.code == Some(2) && run.stdout.is_empty() && run.stderr.contains(missing), "{}", run.stderr);
    }
    folder.refuses("doctor --plan -k 0 -d 3", 2, &["-k"]);
}

#[test]
fn doctor_says_what_there_is_and_promises_no_gpu() {
    let text = Folder::new().gmm("doctor").ok().stdout;
    for part in ["gmm 0.", "threads", "reference"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    // Either the GPU is named, or what is missing is explained once; the last line does not repeat it.
    let auto = text.lines().find(|line| line.starts_with("--device auto")).expect("what auto takes");
    if text.contains("cuda:0") {
        assert!(auto.contains("cuda:0, since") || auto.contains("cpu, since"), "{text}");
    } else {
        assert!(text.lines().any(|line| line.starts_with("missing ")), "{text}");
        assert_eq!(auto, "--device auto  cpu, since no GPU can be used");
    }
}

#[test]
fn completions_know_the_options() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let text = Folder::new().gmm(&format!("completions {shell}")).ok().stdout;
        assert!(text.contains("require-convergence"), "{shell}");
    }
}

#[test]
fn the_manual_has_a_page_for_every_command_and_names_all_of_them() {
    let folder = Folder::new();
    folder.gmm("man pages").ok();
    let read = |name: &str| folder.text(&format!("pages/{name}.1"));
    let all = read("gmm");
    for command in COMMANDS {
        // A hyphen is escaped in roff.
        assert!(all.contains(&format!("gmm\\-{command}(1)")), "{command}: {all}");
        let page = read(&format!("gmm-{command}"));
        for part in [".SH NAME", ".SH SYNOPSIS", ".SH OPTIONS", ".SH EXAMPLES", &format!("\\fBgmm {command}\\fR")] {
            assert!(page.contains(part), "{command} has no {part}: {page}");
        }
    }
    assert!(read("gmm-plot-fit").contains("\\fBgmm plot fit\\fR") && !folder.path("pages/gmm-man.1").exists());
    let folder = Folder::with("pages", "a file");
    folder.refuses("man pages", 6, &["cannot create the folder 'pages'"]);
}

#[test]
fn help_has_an_example_for_every_command() {
    let folder = Folder::new();
    let top = folder.gmm("--help").ok().stdout;
    for command in COMMANDS {
        assert!(top.contains(&format!("\n  {command} ")), "{top}");
        let help = folder.gmm(&format!("{command} --help")).ok().stdout;
        assert!(help.contains(&format!("\n  gmm {command} ")) || help.contains("Example"), "{help}");
    }
    assert!(folder.gmm("--version").ok().stdout.starts_with("gmm 0."));
}
