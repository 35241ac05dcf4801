//! Pictures of benchmark records: sweeps, bars and maps.

use super::*;

#[test]
fn records_of_the_repository_are_drawn() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../benches/record");
    let (mut drawn, mut swept) = (0, 0);
    for machine in std::fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path()) {
        let files = std::fs::read_dir(&machine).unwrap().map(|entry| entry.unwrap().path());
        for file in files.filter(|path| path.extension().is_some_and(|e| e == "csv")) {
            let text = std::fs::read_to_string(&file).unwrap();
            let record = Record::parse(&text).unwrap();
            let name = file.file_stem().unwrap().to_string_lossy().into_owned();
            check(&format!("bench-{name}"), &bench(&record, None).unwrap_or_else(|e| panic!("{name}: {e}")));
            if name.starts_with("growth") {
                for sweep in Sweep::ALL {
                    let picture = bench(&record, Some(sweep));
                    // A record may contain only some sweeps.
                    if text.lines().any(|line| line.starts_with(&format!("{},", sweep.name()))) {
                        check(&format!("bench-{name}-{}", sweep.name()), &picture.unwrap());
                        swept += 1;
                    } else {
                        assert!(matches!(picture, Err(Error::Record(_))), "{name} {}", sweep.name());
                    }
                }
            }
            drawn += 1;
        }
    }
    assert!(drawn > 3 && swept > 3, "{drawn} records, {swept} sweeps");
    let empty = Record::parse("workload,ms\na,\n").unwrap();
    assert!(matches!(bench(&empty, None), Err(Error::Record(_))));
    assert!(matches!(bench(&empty, Some(Sweep::Rows)), Err(Error::Record(_))));
}

/// A record of `gmm bench` in which an engine's time grows with the work, from `more` milliseconds upwards.
fn harness(what: &str, engines: &[(&str, f64)], sizes: &[(&str, [usize; 3])]) -> Record {
    let mut text =
        "# what: a: a sweep; see x\n# date: 2026-01-02\n# gpu: NVIDIA X; 9 GB\n# commit: gmm 0.1.0\n".to_owned();
    text += "what,sweep,engine,covariance,precision,n,k,d,iterations,status,ms,samples,batch_ms,resident_ms,device_ms,way\n";
    for (engine, more) in engines {
        for (i, (sweep, [n, k, d])) in sizes.iter().enumerate() {
            let ms = more + 1e-6 * (n * k * d) as f64 / more;
            let status = if i % 5 == 1 { "disturbed" } else { "ok" };
            let (covariance, parts) = match what {
                "product" => ("", format!(",{},{}", 0.5 * ms, 0.2 * ms)),
                "likelihood" => ("diag", format!("{},,", 0.3 * ms)),
                _ => ("full", ",,".to_owned()),
            };
            let way = if engine.starts_with("cuda") { ["fused", "halves", "large"][(k * d / 900).min(2)] } else { "" };
            for precision in ["f64", "f32"] {
                text += &format!(
                    "{what},{sweep},{engine},{covariance},{precision},{n},{k},{d},20,{status},{ms},9,{parts},{way}\n"
                );
            }
        }
    }
    text += &format!("{what},{},cpu,,f64,{},1,1,,left,,,,,,\n", sizes[0].0, sizes[0].1[0]);
    Record::parse(&text).unwrap()
}

#[test]
fn records_of_gmm_bench_are_lines_of_engines_or_maps() {
    let all = [
        ("reference", 0.3),
        ("cpu", 0.05),
        ("cuda:0", 2.0),
        ("scikit-learn", 1.0),
        ("scikit-learn-cuda", 9.0),
        ("gmmx", 5.0),
        ("torch", 1.1),
        ("torch-cuda", 4.0),
    ];
    let rows = (7..20).map(|i| ("n", [1 << i, 8, 2]));
    let components = (0..7).map(|i| ("k", [524_288, 1 << i, 2]));
    let columns = (3..7).map(|i| ("d", [8192, 4, 1 << i]));
    let em = harness("em", &all, &rows.clone().chain(components).chain(columns).collect::<Vec<_>>());
    check("bench-em-sweeps", &bench(&em, None).unwrap());
    check("bench-em-sweeps-d", &bench(&em, Some(Sweep::Columns)).unwrap());
    let likelihood = harness("likelihood", &all, &rows.collect::<Vec<_>>());
    check("bench-likelihood-sweep", &bench(&likelihood, None).unwrap());
    let square = (6..13).map(|i| ("square", [1 << i; 3])).chain([("large", [2000, 40_000, 2000])]);
    let products = harness("product", &[all[1], all[2], ("numpy", 0.01), all[7]], &square.collect::<Vec<_>>());
    let picture = bench(&products, None).unwrap();
    check("bench-products", &picture);
    let words: Vec<String> = texts(&picture).into_iter().map(|(words, _)| words).collect();
    assert!(words.iter().any(|word| word == "cuda:0, A resident"), "{words:?}");
    assert!(
        !words.iter().any(|word| word == "cpu, A resident") && words.iter().any(|word| word.contains("1 size left"))
    );
    assert!(matches!(bench(&products, Some(Sweep::Rows)), Err(Error::Record(_))));
    let mut grid = Vec::new();
    for n in [10_000, 50_000, 90_000] {
        for k in [1, 21, 41, 61, 81, 101] {
            grid.extend([2, 12, 22, 32, 42].map(|d| ("grid", [n, k, d])));
        }
    }
    check("bench-variants", &bench(&harness("em", &all[1..3], &grid), None).unwrap());
    check("bench-variants-small", &bench(&harness("em", &all[1..2], &grid[..7]), None).unwrap());
}

/// The multiples that a picture of bars shows, from top to bottom.
fn multiples(picture: &Picture) -> Vec<String> {
    texts(picture).into_iter().map(|(text, _)| text).filter(|text| text.ends_with('×')).collect()
}

fn filters(all: &[&str]) -> Vec<Only> {
    all.iter().map(|only| only.parse().unwrap()).collect()
}

#[test]
fn bars_compare_programs_of_two_records() {
    let record = |name: &str| {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../benches/record");
        Record::parse(&std::fs::read_to_string(root.join(name)).unwrap()).unwrap()
    };
    let records = [record("amd-epyc-2c/2026-11-21-cpu-5.csv"), record("nvidia-h200/2026-11-23-python-peers.csv")];
    let only = ["covariance=full", "1:precision=f64", "2:precision=f32", "way=torch,jax"];
    let picture = bars(&records, &filters(&only)).unwrap();
    check("bars", &picture);
    assert!(picture.size().0 <= 760.0 && picture.size().1 <= 420.0, "{:?}", picture.size());
    let words: Vec<String> = texts(&picture).into_iter().map(|(text, _)| text).collect();
    for word in [
        "AMD EPYC, 2 cores: time per EM iteration, float64, 2026-11-21",
        "NVIDIA H200: time per fit of 20 iterations, float32, 2026-11-23",
        "1e5 × 13, K=8, full",
        "2e4 × 32, K=64, full",
        "scikit-learn on torch",
    ] {
        assert_eq!(words.iter().filter(|text| *text == word).count(), 1, "{word} in {words:?}");
    }
    // The colour of gmm-rs: its entry of the legend and its five bars.
    assert_eq!(picture.svg().matches("fill=\"#0072b2\"").count(), 6);
    // All lines: scikit-learn on the CPU takes thousands of times as long, and made fewer iterations.
    let all = bars(&records, &[]).unwrap();
    check("bars-all", &all);
    assert!(all.svg().contains("time per fit, divided by its iterations, 2026-11-23"));
    assert!(all.svg().contains(">1e6 × 13, K=8, full, f32<") && all.svg().contains(">scikit-learn on numpy<"));
}

#[test]
fn bars_of_awkward_records_are_drawn_or_refused() {
    let head = "# processor: A processor with a very long name which goes on and on and on, 999 cores, more\n\
                # what: milliseconds per thing <&> by others\nwhat,way,precision,n,k,d,iterations,status,ms\n";
    let parsed = |lines: &str| Record::parse(&format!("{head}{lines}")).unwrap();
    // Ours is the line with the arrays of the first other program, else the fastest.
    let ours = "gmm_rs,numpy,f64,10,1,2,10,ok,50\ngmm_rs,torch,f64,10,1,2,10,ok,40\ngmm_rs,jax,f64,10,1,2,10,ok,20\n";
    let same = parsed(&format!("{ours}gmmx,jax,f64,10,1,2,10,ok,30\ntorch,torch,f64,10,1,2,5,ok,10\n"));
    assert_eq!(multiples(&bars(&[same], &[]).unwrap()), ["1×", "1.5×", "1×"]);
    let other = parsed(&format!("{ours}x,y,f64,10,1,2,10,ok,19\nz,y,f64,10,1,2,10,wrong,70\nz,u,f64,10,1,2,10,ok,\n"));
    assert_eq!(multiples(&bars(&[other], &[]).unwrap()), ["1×", "0.95×"]);
    let mut many = ours.to_owned();
    for i in 0..12 {
        many += &format!("a program with a long name {i},torch,f64,10,1,2,10,ok,{}\n", 10f64.powi(i - 3));
    }
    many += "gmm_rs,torch,f32,123456789,123456,123456,1,ok,1\ntorch,torch,f32,123456789,123456,123456,1,ok,9.94\n";
    let many = parsed(&many);
    let picture = bars(&[many.clone(), many.clone()], &[]).unwrap();
    check("bars-many", &picture);
    let shown = multiples(&picture);
    assert_eq!((shown.len(), shown[1].as_str(), shown[7].as_str()), (30, "0.000025×", "25×"), "{shown:?}");
    assert_eq!((shown[13].as_str(), shown[14].as_str()), ("1×", "9.9×"));
    let refused = |only: &[&str], part: &str| {
        let error = bars(std::slice::from_ref(&many), &filters(only)).unwrap_err();
        assert!(error.to_string().contains(part), "{error}");
    };
    refused(&["kind=full"], "no column 'kind' in the records: there are what, way");
    refused(&["2:way=torch"], "no record 2");
    refused(&["precision=f16"], "record 1: no workload is left");
    refused(&["way=jax"], "record 1: no workload is left");
    assert!(matches!(bars(&[Record::parse("n,ms\n1,2\n").unwrap()], &[]), Err(Error::Record(_))));
    for text in ["", "way", "=x", "way=", "way=x,", "0:way=x", "x:way=y", "1:=x"] {
        assert!(text.parse::<Only>().is_err_and(|why| why.contains("COLUMN=VALUE")), "{text}");
    }
}

#[test]
fn plans_are_maps() {
    let (columns, components) = ([1, 2, 4, 8, 16, 32, 64, 128, 256, 512], [1, 4, 16, 64, 256, 1024]);
    let of = |k: usize, d: usize| match k * d {
        0..=64 => "fused",
        65..=2048 => "halves",
        2049..=65_536 => "large",
        _ => "host",
    };
    let ways: Vec<String> = components.iter().flat_map(|k| columns.iter().map(|d| of(*k, *d).to_owned())).collect();
    let legend = [("fused", "one kernel a pass"), ("narrow", "not in it"), ("halves", "two kernels"), ("host", "")];
    let legend = legend.map(|(name, what)| (name.to_owned(), what.to_owned()));
    let map = |ways: &[String]| {
        let (title, note) = ("How EM runs: full covariances, f32, 1000000 rows".to_owned(), "as on a GPU".to_owned());
        plan(&Map { columns: &columns, components: &components, ways, legend: &legend, title, note })
    };
    let picture = map(&ways).unwrap();
    check("plan", &picture);
    // A path without a description is in the legend; a path that occurs nowhere is not.
    assert!(picture.svg().contains(">large<") && !picture.svg().contains("narrow"));
    assert!(matches!(map(&ways[1..]), Err(Error::Nothing(_))));
    let (title, note) = ("How EM runs: full covariances, f32, 1000000 rows".to_owned(), "as on a GPU".to_owned());
    let one = Map { columns: &[5], components: &[5], ways: &ways[..1], legend: &legend, title, note };
    check("plan of one size", &plan(&one).unwrap());
}
