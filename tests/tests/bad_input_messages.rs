//! Bad input, rows 93 to 97: the wording of messages; and text from files that must not reach a terminal unescaped.

use gmm_tests::{Folder, close, data, numbers};
use serde_json::{Value, json};

#[test]
fn row_93_a_best_candidate_that_did_not_converge_is_told_of_and_its_mark_is_explained() {
    let folder = Folder::new();
    let x = data("old_faithful.csv");
    let run = folder.gmm(&format!("select {x} -k 2..3 --max-iter 2")).ok();
    for part in
        ["warning: the best candidate, ", "did not converge in 2 iterations", "(!)", "raise --max-iter or --tol"]
    {
        assert!(run.stderr.contains(part), "'{part}' is not in: {}", run.stderr);
    }
    assert!(run.stdout.contains("2 (!)"), "{}", run.stdout);
    assert!(run.stdout.contains("\n(!) not converged within --max-iter iterations\n"), "{}", run.stdout);
    // With -o the table is printed too; the JSON output has a field for it.
    assert!(folder.gmm(&format!("select {x} -k 2 --max-iter 2 -o m.json")).ok().stderr.contains("did not converge"));
    let run = folder.gmm(&format!("select {x} -k 2 --max-iter 2 --json")).ok();
    assert_eq!(run.json()["candidates"][0]["converged"], false);
    assert!(run.stderr.contains("did not converge"), "{}", run.stderr);
    let run = folder.gmm(&format!("select {x} -k 2")).ok();
    assert!(!run.stdout.contains("(!)") && run.stderr.is_empty(), "{}{}", run.stdout, run.stderr);
}

#[test]
fn row_94_covariances_that_memory_cannot_hold_are_refused_with_the_kind_that_it_can() {
    let folder = Folder::new();
    // 40 rows of 20,000 columns.
    let header = gmm_tests::npy("<f4", false, "(40, 20000)", &vec![0u8; 40 * 20_000 * 4]);
    folder.write("x.npy", header);
    let run = folder.bash("ulimit -v 8000000; exec $GMM fit x.npy -k 2 -o m.json --threads 1");
    run.failed(
        5,
        &["full covariances of 20000 columns", "bytes of memory", "free: use --covariance diag", "fewer columns"],
    );
    let run = folder.bash("ulimit -v 8000000; exec $GMM fit x.npy -k 2 --covariance tied -o m.json --threads 1");
    run.failed(5, &["tied covariances", "use --covariance diag"]);
    // Diag covariances, which the advice names, do fit into this memory.
    let run = folder.bash("ulimit -v 8000000; exec $GMM fit x.npy -k 40 --covariance diag -o m.json --threads 1");
    assert_eq!(run.code, Some(0), "{}", run.stderr);
}

fn model(weights: &Value, means: &Value, variances: &Value) -> Folder {
    let (k, d) = (weights.as_array().unwrap().len(), means[0].as_array().unwrap().len());
    let model = json!({
        "format": "gmm-model", "version": 1, "covariance_type": "diag", "n_components": k, "n_features": d,
        "feature_names": null, "weights": weights, "means": means, "covariances": variances
    });
    Folder::with("m.json", &model.to_string())
}

#[test]
fn row_95_small_numbers_are_printed_in_few_digits_and_zero_as_0() {
    let folder = model(&json!([3.3306690738754696e-17, 1.0]), &json!([[0.0], [0.0]]), &json!([[1e-20], [1e-20]]));
    let shown = folder.gmm("show m.json").ok().stdout;
    assert!(shown.contains("3.33e-17") && !shown.contains("0.0000 ") && shown.contains(" 0 ± 1.00e-10"), "{shown}");
    let folder = model(&json!([0.0, 1.0]), &json!([[1.0], [2.0]]), &json!([[1.0], [1.0]]));
    let shown = folder.gmm("show m.json").ok().stdout;
    let weights: Vec<&str> = shown.lines().find(|l| l.starts_with("weight")).unwrap().split_whitespace().collect();
    assert_eq!(weights, ["weight", "0", "1.0000"]);
    // A pivot of the order of eps must be printed with an exponent, not with twenty zeros.
    let folder = Folder::with("x.csv", "a,b\n0.1,0.3\n0.2,0.6\n0.3,0.9\n0.7,2.1\n");
    let error = folder.gmm("fit x.csv -k 1 --reg-covar 0");
    assert_eq!(error.code, Some(4));
    let pivot = error.stderr.split("pivot ").nth(1).unwrap().split(' ').next().unwrap();
    assert!(pivot.len() <= 9 && pivot.parse::<f64>().unwrap().abs() < 1e-10, "{}", error.stderr);
    let run = folder.gmm("fit x.csv -k 1 --tol 1e-12").ok();
    assert!(run.stdout.contains(" 1e-12)"), "{}", run.stdout);
}

#[test]
fn row_96_a_fall_of_the_likelihood_that_is_rounding_or_far_below_tol_is_no_warning() {
    let folder = Folder::new();
    for seed in 0..6 {
        for (k, d) in [(2, 1), (3, 4), (5, 8)] {
            folder.gmm(&format!("generate -n 300 -k {k} -d {d} --separation 1 --seed {seed} -o x.npy")).ok();
            // Long past convergence, where changes are only rounding errors.
            for kind in ["full", "diag", "spherical", "tied"] {
                let fit = format!("fit x.npy -k {k} --covariance {kind} --tol 0 --max-iter 300 --reg-covar 0");
                let run = folder.gmm(&fit).ok();
                assert!(!run.stderr.contains("fell by"), "{fit}: {}", run.stderr);
            }
        }
    }
    // A real decrease is still reported.
    let x = data("old_faithful.csv");
    folder.gmm(&format!("fit {x} -k 2 --reg-covar 0 --tol 1e-9 -o m.json")).ok();
    let run = folder.gmm(&format!("fit {x} --init m.json --reg-covar 1 --tol 0 --max-iter 3")).ok();
    assert!(run.stderr.contains("warning: the mean log-likelihood fell by 0."), "{}", run.stderr);
    // The same decrease, with a tol a thousand times larger.
    let run = folder.gmm(&format!("fit {x} --init m.json --reg-covar 1 --tol 1e4 --max-iter 3")).ok();
    assert!(!run.stderr.contains("fell by"), "{}", run.stderr);
}

/// Rows around two points; around one of them, many rows have the same value in the second column.
fn with_a_spike() -> Folder {
    let mut text = "height,age\n".to_owned();
    for i in 0..120 {
        let u = |m: u32| f64::from((i * m + 7) % 97) / 97.0;
        text += &format!("{},{}\n", u(31), u(57));
        text += &format!("{},{}\n", 20.0 + u(43), 30.0);
    }
    Folder::with("x.csv", &text)
}

#[test]
fn row_97_a_component_whose_variance_is_reg_covar_is_named_with_its_column() {
    let folder = with_a_spike();
    for kind in ["full", "diag"] {
        let run = folder.gmm(&format!("fit x.csv -k 2 --covariance {kind} -o m.json")).ok();
        let at = numbers(&folder.json("m.json")["means"]).iter().position(|m| (m - 30.0).abs() < 1.0).unwrap() / 2;
        for part in
            ["warning: --reg-covar 1e-6 is more than half the variance of ", &format!("component {at} (column 'age')")]
        {
            assert!(run.stderr.contains(part), "{kind}: '{part}' is not in: {}", run.stderr);
        }
        assert_eq!(run.stderr.lines().count(), 1, "{}", run.stderr);
        let run = folder.gmm(&format!("select x.csv -k 2 --covariance {kind}")).ok();
        assert!(run.stderr.contains("column 'age'"), "{}", run.stderr);
    }
    folder.gmm("convert x.csv x.npy").ok();
    assert!(folder.gmm("fit x.npy -k 2").ok().stderr.contains("(column 1)"));
    // A singleton has no variance in any direction.
    folder.write("y.csv", "1,1\n2,1.5\n1.5,3\n2.5,2\n1.7,1.1\n90,90\n");
    assert!(
        folder.gmm("fit y.csv -k 2 --covariance spherical").ok().stderr.contains("half the variance of component ")
    );
    // No false alarm for ordinary rows with a genuinely narrow component.
    let run = folder.gmm(&format!("fit {} -k 3 --reg-covar 1e-9", data("iris.csv")));
    assert!(!run.stderr.contains("half the variance"), "{}", run.stderr);
}

#[test]
fn rows_24_and_97_a_constant_column_is_told_of_once() {
    let folder = Folder::new();
    let rows: String = (0..60).map(|i| format!("{},5,{}\n", (i * 37) % 61, (i * 11) % 59)).collect();
    folder.write("x.csv", format!("a,b,c\n{rows}"));
    for kind in ["full", "tied", "diag"] {
        let run = folder.gmm(&format!("fit x.csv -k 2 --covariance {kind}")).ok();
        assert_eq!(run.stderr.matches("'b'").count(), 1, "{}", run.stderr);
        assert!(!run.stderr.contains("half the variance"), "{}", run.stderr);
    }
}

#[test]
fn variances_that_underflow_are_a_numerical_error() {
    let folder = Folder::new();
    let rows: String = (0..40).map(|i| format!("{}e-160,{}e-160\n", (i * 37) % 61, (i * 11) % 59)).collect();
    folder.write("x.csv", rows);
    for kind in ["full", "tied", "diag", "spherical"] {
        for init in ["kmeans", "random", "random-rows", "stride"] {
            let run = folder.gmm(&format!("fit x.csv -k 2 --covariance {kind} --reg-covar 0 --init {init} -o m.json"));
            run.failed(4, &["component 0", "column", "underflows", "rescale the data"]);
        }
    }
}

/// Characters that control a terminal, break or reverse a line, or are invisible.
const HOSTILE: &str = "a\u{1b}[2J\u{9b}31m\u{7}\u{202e}b\u{2066}\u{200b}";

#[track_caller]
fn harmless(what: &str, text: &str) {
    let bad =
        |c: &char| (c.is_control() && *c != '\n') || matches!(*c, '\u{200b}' | '\u{202e}' | '\u{2066}' | '\u{9b}');
    assert_eq!(text.chars().find(bad), None, "{what}: {text:?}");
}

#[test]
fn names_from_files_are_shown_escaped_wherever_they_are_printed() {
    let folder = Folder::new();
    // The second column is constant; in `bad.csv` the third ends in a bad value.
    let rows: String = (0..40).map(|i| format!("{},5,{}\n", (i * 37) % 41, (i * 11) % 43)).collect();
    folder.write("x.csv", format!("\"{HOSTILE}1\",\"{HOSTILE}2\",\"{HOSTILE}\n3\"\n{rows}"));
    folder.write("bad.csv", format!("\"{HOSTILE}1\",\"{HOSTILE}2\",\"{HOSTILE}3\"\n{rows}1,2,{HOSTILE}\n"));
    folder.write("nan.csv", format!("\"{HOSTILE}1\",\"{HOSTILE}2\",\"{HOSTILE}3\"\n{rows}1,2,NaN\n"));
    folder.write("other.csv", format!("p,q,r\n{rows}"));
    folder.gmm("fit x.csv -k 2 -o m.json -q").ok();
    assert!(folder.text("m.json").contains("\\u001b[2J"), "JSON has its own escapes");
    let names = numbers_of_escapes(&folder.gmm("show m.json").ok().stdout);
    assert!(names >= 3, "names are shown by their escapes");
    for command in [
        "fit x.csv -k 2 -v",
        "fit x.csv -k 2 --reg-covar 0",
        "fit bad.csv -k 2",
        "fit nan.csv -k 2",
        "fit x.csv -k 2 --columns zzz",
        "show m.json",
        "predict m.json other.csv",
        "mcmc x.csv -k 1 -o d.npz",
        "select x.csv -k 1..2",
        "plot fit m.json x.csv --axes zzz -o y.svg",
    ] {
        let run = folder.gmm(command);
        harmless(command, &run.stdout);
        harmless(command, &run.stderr);
    }
    folder.gmm("plot fit m.json x.csv -o y.svg -q").ok();
    let svg = folder.text("y.svg");
    harmless("svg", &svg);
    assert!(svg.contains("\\u{1b}[2J"), "the picture shows the escape");
    // A newline in a name is shown escaped.
    assert!(folder.gmm("show m.json").ok().stdout.contains("\\n3"));
}

fn numbers_of_escapes(text: &str) -> usize {
    text.matches("\\u{1b}[2J").count()
}

#[test]
fn paths_and_words_from_files_are_shown_escaped_too() {
    let folder = Folder::new();
    let run = |arguments: &[&str]| {
        let output = folder.command("").args(arguments).output().unwrap();
        [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap())
    };
    let name = format!("{HOSTILE}.csv");
    let model = format!("{HOSTILE}.json");
    let check = |arguments: &[&str], shown: bool| {
        let [out, err] = run(arguments);
        harmless(&format!("{arguments:?}"), &out);
        harmless(&format!("{arguments:?}"), &err);
        assert_eq!(format!("{out}{err}").contains("\\u{1b}[2J"), shown, "{arguments:?}: {out}{err}");
    };
    check(&["fit", &name, "-k", "2"], true);
    folder.write(&name, "x\n1\n2\n4\n7\n");
    check(&["fit", &name, "-k", "2", "-v"], true);
    check(&["fit", &name, "-k", "9"], false);
    check(&["fit", &name, "-k", "2", "-o", &name], true);
    // Errors of the command line's form; the argument parser itself removes some of the characters.
    for arguments in
        [["fit", &name, &name, "-k", "2"], ["fit", &name, "-k", "2", HOSTILE], ["fit", &name, "-k", HOSTILE, "-q"]]
    {
        run(&arguments).iter().for_each(|text| harmless(&format!("{arguments:?}"), text));
    }
    run(&["fit", &name, "-k", "1", "-o", &model]);
    check(&["loglik", &name, &model], true);
    check(&["sample", &model, "-n", "3", "-o", &format!("none{HOSTILE}/y.csv")], true);
    // Words from a model file.
    let text = folder.text(&model).replace("\"engine\": \"cpu\"", "\"engine\": \"\\u001b[2Jx\"");
    folder.write("engine.json", &text);
    check(&["show", "engine.json"], true);
    folder.write("kind.json", text.replace("\"full\"", "\"\\u001b[2Jx\""));
    check(&["show", "kind.json"], true);
    folder.write("format.json", text.replace("\"gmm-model\"", "\"\\u001b[2Jx\""));
    check(&["show", "format.json"], true);
    // Names of arrays in an npz.
    folder.write("x.npz", gmm_tests::npz(&[("\u{1b}[2Ja", &[1, 1], &[1.0]), ("b", &[1, 1], &[1.0])]));
    check(&["fit", "x.npz", "-k", "1"], true);
}

#[test]
fn counts_beyond_what_can_be_counted_are_one_usage_error() {
    let folder = model(&json!([1.0]), &json!([[0.0]]), &json!([[1.0]]));
    for n in [
        "99999999999999999999",
        "18446744073709551615",
        "18446744073709551616",
        "9223372036854775808",
        "9000000000000001",
        "1e16",
        "1e300",
        "1e400",
    ] {
        for command in ["sample m.json -n N -o y.npy", "sample m.json -n N", "generate -n N -k 2 -d 3 -o y.npy"] {
            folder.refuses(&command.replace('N', n), 2, &[n, "-n", "at most 9e15"]);
        }
        folder.refuses(&format!("generate -n 3 -k {n} -d 3 -o y.npy"), 2, &[n, "-k", "at most 9e15"]);
        folder.refuses(&format!("fit x.csv -k {n} -o y.json"), 2, &[n, "-k", "at most 9e15"]);
        folder.refuses(&format!("mcmc x.csv -k 1 --draws {n} -o y.npz"), 2, &[n, "--draws", "at most 9e15"]);
    }
    for n in ["inf", "nan", "NaN", "infinity", "1e-3", "0x10"] {
        folder.refuses(&format!("sample m.json -n {n}"), 2, &[n, "whole number"]);
    }
    // The products of the largest allowed sizes do not overflow.
    folder.refuses("generate -n 9e15 -k 9e15 -d 9e15 -o y.npy", 5, &["a mixture of this size needs", "bytes"]);
    folder.refuses("generate -n 9e15 -k 1 -d 9e15 --covariance spherical -o y.npy", 5, &["bytes"]);
    folder.refuses("sample m.json -n 9e15 -o y.npy", 6, &["no room"]);
}

#[test]
fn components_of_almost_no_weight_count_as_their_weight_says() {
    // A tiny weight, one near the smallest normal number, and a subnormal one.
    for tiny in [1e-300, 1e-308, 1e-320] {
        let folder = model(&json!([tiny, 1.0]), &json!([[0.0], [100.0]]), &json!([[1.0], [1.0]]));
        folder.write("x.csv", "x\n0\n100\n");
        let shown = folder.gmm("show m.json").ok();
        assert!(shown.stdout.contains(&gmm_model::three_digits(tiny)) && shown.stderr.is_empty(), "{}", shown.stdout);
        // At 0 the other component's density is far smaller still: exp(-5000) against 1e-300.
        let normal = -0.5 * (2.0 * std::f64::consts::PI).ln();
        for (device, tolerance) in [("cpu", 1e-12), ("reference", 1e-12), ("cpu --precision f32", 1e-5)] {
            folder.gmm(&format!("score m.json x.csv --per-row -o y.npy --device {device}")).ok();
            let densities = f64s(&folder.read("y.npy"));
            close(&densities, &[normal + tiny.ln(), normal], tolerance);
            folder.gmm(&format!("predict m.json x.csv --proba -o p.npy --device {device}")).ok();
            close(&f64s(&folder.read("p.npy")), &[1.0, 0.0, 0.0, 1.0], 1e-12);
        }
        // The component is drawn about once in 1e300 rows.
        let drawn = folder.gmm("sample m.json -n 2000").ok();
        assert!(drawn.stdout.lines().skip(1).all(|x| (x.parse::<f64>().unwrap() - 100.0).abs() < 8.0));
        // The weight survives conversion to each format.
        folder.gmm("convert m.json m.safetensors").ok();
        folder.gmm("convert m.safetensors n.json").ok();
        assert_eq!(numbers(&folder.json("n.json")["weights"]), [tiny, 1.0]);
    }
}

#[test]
fn a_start_with_almost_no_weight_gets_the_rows_that_are_its_own() {
    let folder = model(&json!([1e-300, 1.0]), &json!([[0.0], [100.0]]), &json!([[1.0], [1.0]]));
    folder.write("x.csv", "-1\n0\n1\n99\n100\n101\n");
    for device in ["cpu", "reference"] {
        let run = folder.gmm(&format!("fit x.csv --init m.json --device {device} -o y.json")).ok();
        assert_eq!(run.stderr, "");
        close(&numbers(&folder.json("y.json")["weights"]), &[0.5, 0.5], 1e-9);
    }
    // If no rows belong to it, it keeps its parameters, with a warning.
    folder.write("z.csv", "99\n100\n101\n102\n");
    let run = folder.gmm("fit z.csv --init m.json -o z.json").ok();
    assert!(run.stderr.contains("components [0] are empty"), "{}", run.stderr);
    assert_eq!(numbers(&folder.json("z.json")["means"])[0], 0.0);
}

#[test]
fn row_weights_count_by_their_ratios_however_small_they_are() {
    let folder = Folder::new();
    let rows = |scale: &str| -> String {
        (0..40).map(|i| format!("{},{},{}{scale}\n", (i * 37) % 41, (i * 11) % 43, 1 + i % 3)).collect()
    };
    folder.write("one.csv", format!("a,b,w\n{}", rows("")));
    folder.write("tiny.csv", format!("a,b,w\n{}", rows("e-300")));
    // One more row, with a negligible weight.
    folder.write("more.csv", format!("a,b,w\n{}1e6,-1e6,1e-300\n", rows("")));
    for kind in ["full", "diag"] {
        let means = |name: &str| {
            let run = folder
                .gmm(&format!("fit {name} -k 2 --weights w --covariance {kind} --tol 1e-9 --max-iter 10000 -o m.json"))
                .ok();
            assert_eq!(run.stderr, "", "{name}");
            let model = folder.json("m.json");
            assert!(model["fit"]["log_likelihood"].is_number(), "{name}: {model}");
            [numbers(&model["weights"]), numbers(&model["means"]), numbers(&model["covariances"])].concat()
        };
        let one = means("one.csv");
        close(&means("tiny.csv"), &one, 1e-9);
        close(&means("more.csv"), &one, 1e-9);
    }
}

/// The values of an npy file of `<f8`.
fn f64s(npy: &[u8]) -> Vec<f64> {
    let head = 10 + usize::from(u16::from_le_bytes([npy[8], npy[9]]));
    npy[head..].as_chunks::<8>().0.iter().map(|b| f64::from_le_bytes(*b)).collect()
}

#[test]
fn a_damaged_safetensors_model_is_bad_data_whichever_bit_it_was() {
    let folder = Folder::new();
    folder.gmm(&format!("fit {} -k 2 -o m.safetensors", data("old_faithful.csv"))).ok();
    let whole = folder.read("m.safetensors");
    let shown = folder.gmm("show m.safetensors").ok().stdout;
    let checksum = whole.windows(8).position(|bytes| bytes == b"checksum").unwrap();
    let head = 8 + u64::from_le_bytes(whole[..8].try_into().unwrap()) as usize;
    // Every byte of the numbers, and every third byte of the metadata.
    for at in (0..head).step_by(3).chain(head..whole.len()) {
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << (at % 7);
        folder.write("y.safetensors", &bytes);
        let run = folder.gmm("show y.safetensors");
        if run.code == Some(0) {
            // Only a change in the name of the checksum field can go unnoticed.
            assert_eq!(run.stdout, shown, "byte {at}");
            assert!((checksum..checksum + 8).contains(&at), "byte {at}");
        } else {
            run.failed(3, &["y.safetensors"]);
        }
        if at >= head {
            run.failed(3, &["checksum", "damaged"]);
        }
    }
    // Files of earlier versions have no checksum.
    let json = Folder::new();
    std::fs::copy(folder.path("m.safetensors"), json.path("m.safetensors")).unwrap();
    json.gmm("convert m.safetensors m.json").ok();
    assert_eq!(json.gmm("show m.json").ok().stdout, shown);
}
