//! `gmm fit --by` and `--each-column`, and predict, score, select and show of the models of groups.

use gmm_data::{GroupLabel, GroupModels, ModelFile, ModelOrGroups};
use gmm_tests::Folder;
use serde_json::Value;

/// Rows of three shops in turn, `all.csv`, with a column of their names and one of their numbers; and those of each shop,
/// `north.csv`, `south.csv` and `east.csv`, without.
fn shops() -> Folder {
    let folder = Folder::new();
    let (mut all, mut own) = ("x,shop,y,number\n".to_owned(), vec!["x,y\n".to_owned(); 3]);
    // A sequence of low discrepancy: the same rows everywhere.
    let mut state = 0.5;
    let mut next = || {
        state = (state + 0.618_033_988_749_895) % 1.0;
        state
    };
    for i in 0..180 {
        let shop = i % 3;
        let far = if next() < 0.4 { 6.0 } else { 0.0 };
        let (x, y) = (far + 4.0 * next() + shop as f64, far * 0.5 - next() * next());
        all += &format!("{x},{},{y},{}\n", NAMES[shop], NUMBERS[shop]);
        own[shop] += &format!("{x},{y}\n");
    }
    std::fs::write(folder.path("all.csv"), all).expect("a file");
    for (name, rows) in NAMES.iter().zip(own) {
        std::fs::write(folder.path(&format!("{name}.csv")), rows).expect("a file");
    }
    folder
}

const NAMES: [&str; 3] = ["north", "south", "east"];
const NUMBERS: [&str; 3] = ["7", "-1", "2.5"];

fn groups(folder: &Folder, name: &str) -> GroupModels {
    let bytes = std::fs::read(folder.path(name)).expect("a file");
    match gmm_data::read_model_or_groups(&bytes, name).expect("models") {
        ModelOrGroups::Groups(models) => models,
        ModelOrGroups::Model(_) => panic!("one model"),
    }
}

fn model(folder: &Folder, name: &str) -> ModelFile {
    gmm_data::read_model(folder.path(name)).expect("a model")
}

fn text(label: &str) -> GroupLabel {
    GroupLabel::Text(label.to_owned())
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

#[test]
fn the_column_of_groups_is_no_column_of_the_fit() {
    let folder = Folder::new();
    folder.write("g.csv", "a,b,g\n1,2,0\n2,1,0\n3,5,0\n4,4,1\n6,5,1\n5,7,1\n");
    folder.gmm("fit g.csv --columns a,b -k 1 --by g -o m.json").ok();
    for command in ["fit g.csv -k 1", "select g.csv -k 1", "score m.json g.csv", "predict m.json g.csv"] {
        folder.refuses(&format!("{command} --columns a,b,g --by g"), 2, &["--columns has the column of --by, 'g'"]);
    }
}

#[test]
fn each_group_has_the_model_of_its_rows_alone() {
    let folder = shops();
    folder.gmm("fit all.csv --columns x,y -k 2 --by shop -o models.json --quiet").ok();
    folder.gmm("fit all.csv --columns x,y -k 2 --by number -o numbers.json --quiet").ok();
    let (models, numbers) = (groups(&folder, "models.json"), groups(&folder, "numbers.json"));
    assert_eq!(models.by.as_deref(), Some("shop"));
    let labels: Vec<String> = models.groups.iter().map(|(label, _)| label.to_string()).collect();
    assert_eq!(labels, ["east", "north", "south"]);
    let labels: Vec<String> = numbers.groups.iter().map(|(label, _)| label.to_string()).collect();
    assert_eq!(labels, ["-1", "2.5", "7"]);
    for (name, number) in NAMES.iter().zip(NUMBERS) {
        folder.gmm(&format!("fit {name}.csv -k 2 -o {name}.json --quiet")).ok();
        let alone = model(&folder, &format!("{name}.json"));
        assert_eq!(models.get(&text(name)), Some(&Ok(alone.clone())), "{name}");
        assert_eq!(numbers.get(&GroupLabel::number(number.parse().unwrap())), Some(&Ok(alone)), "{number}");
    }
    // A text column is no feature, and the other column is one.
    folder.gmm("fit all.csv -k 1 --by shop -o wide.json --quiet").ok();
    let wide = groups(&folder, "wide.json");
    let names = wide.groups[0].1.as_ref().unwrap().feature_names.as_deref().unwrap();
    assert_eq!(names, ["x", "y", "number"]);
}

#[test]
fn a_folder_gets_a_model_for_each_group() {
    let folder = shops();
    folder.gmm("fit all.csv --columns x,y -k 2 --by shop -o models.json --quiet").ok();
    folder.gmm("fit all.csv --columns x,y -k 2 --by shop -o models/ --quiet").ok();
    for (label, one) in groups(&folder, "models.json").groups {
        assert_eq!(model(&folder, &format!("models/{label}.json")), one.unwrap());
    }
}

#[test]
fn rows_are_evaluated_under_the_models_of_their_groups_in_the_order_of_the_input() {
    let folder = shops();
    folder.gmm("fit all.csv --columns x,y -k 2 --by shop -o models.json --quiet").ok();
    folder.gmm("fit all.csv --columns x,y -k 2 --by shop -o models --quiet").ok();
    let column =
        |line: &str| -> Vec<String> { folder.gmm(line).ok().stdout.lines().skip(1).map(str::to_owned).collect() };
    let labels = column("predict models.json all.csv --by shop");
    let proba = column("predict models.json all.csv --by shop --proba");
    let densities = column("score models.json all.csv --by shop --per-row");
    let scores = json(&folder.gmm("score models.json all.csv --by shop --json").ok().stdout);
    assert_eq!(scores["n_rows"], 180);
    for (shop, name) in NAMES.iter().enumerate() {
        let own = |all: &[String]| all.iter().skip(shop).step_by(3).cloned().collect::<Vec<_>>();
        assert_eq!(own(&labels), column(&format!("predict models/{name}.json {name}.csv")));
        assert_eq!(own(&proba), column(&format!("predict models/{name}.json {name}.csv --proba")));
        assert_eq!(own(&densities), column(&format!("score models/{name}.json {name}.csv --per-row")));
        let alone = json(&folder.gmm(&format!("score models/{name}.json {name}.csv --json")).ok().stdout);
        let found = scores["groups"].as_array().unwrap().iter().find(|group| group["group"] == *name).unwrap();
        assert_eq!(found["log_likelihood"], alone["log_likelihood"]);
    }
    let table = folder.gmm("score models.json all.csv --by shop").ok().stdout;
    assert_eq!(
        table.lines().map(|line| line.split_whitespace().next().unwrap()).collect::<Vec<_>>(),
        ["shop", "east", "north", "south", "all"]
    );
}

#[test]
fn a_group_that_fails_spoils_no_other() {
    let folder = shops();
    let mut rows = std::fs::read_to_string(folder.path("all.csv")).unwrap();
    rows += "1,tiny,2,9\n3,flat,3,8\n3,flat,3,8\n";
    std::fs::write(folder.path("more.csv"), rows).expect("a file");
    let run = folder.gmm("fit more.csv --columns x,y -k 2 --reg-covar 0 --by shop -o models.json");
    let run = run.ok();
    assert!(run.stderr.contains("group tiny: rows is 1"), "{}", run.stderr);
    assert!(run.stderr.contains("group flat: "), "{}", run.stderr);
    let models = groups(&folder, "models.json");
    assert_eq!(models.groups.iter().filter(|(_, model)| model.is_ok()).count(), 3);
    assert!(models.get(&text("tiny")).unwrap().as_ref().unwrap_err().contains("at least 2"));
    let shown = folder.gmm("show models.json").ok().stdout;
    assert_eq!((shown.lines().count(), shown.contains("at least 2")), (6, true), "{shown}");
    // Such a group cannot be evaluated, and the error says why.
    let refused = folder.gmm("predict models.json more.csv --by shop");
    assert_eq!(refused.code, Some(3));
    assert!(refused.stderr.contains("no model for group flat, whose fit failed"), "{}", refused.stderr);
    // If all fail, so does the program, with the code of the first error.
    std::fs::write(folder.path("flat.csv"), "x,y,g\n1,2,1\n1,2,1\n3,4,2\n3,4,2\n").expect("a file");
    let failed = folder.gmm("fit flat.csv -k 1 --reg-covar 0 --by g -o none.json");
    assert_eq!(failed.code, Some(4), "{}", failed.stderr);
    assert!(failed.stderr.contains("group 1: ") && !folder.path("none.json").exists(), "{}", failed.stderr);
}

#[test]
fn each_column_is_fitted_alone() {
    let folder = shops();
    folder.gmm("fit all.csv --columns x,y -k 2 --each-column -o columns.json --quiet").ok();
    let models = groups(&folder, "columns.json");
    assert_eq!(models.by, None);
    for name in ["x", "y"] {
        folder.gmm(&format!("fit all.csv --columns {name} -k 2 -o one.json --quiet")).ok();
        assert_eq!(models.get(&text(name)), Some(&Ok(model(&folder, "one.json"))), "{name}");
    }
    assert!(folder.gmm("show columns.json").ok().stdout.starts_with("column"));
}

#[test]
fn each_group_has_its_own_choice() {
    let folder = shops();
    let line = "select all.csv --columns x,y -k 1..3 --covariance full,diag --by shop";
    let found = json(&folder.gmm(&format!("{line} --json -o best.json")).ok().stdout);
    let models = groups(&folder, "best.json");
    for (group, name) in found["groups"].as_array().unwrap().iter().zip(["east", "north", "south"]) {
        assert_eq!(group["group"], name);
        let alone = json(
            &folder.gmm(&format!("select {name}.csv -k 1..3 --covariance full,diag --json -o one.json")).ok().stdout,
        );
        assert_eq!(group["best"], alone["best"]);
        assert_eq!(models.get(&text(name)), Some(&Ok(model(&folder, "one.json"))));
    }
    let table = folder.gmm(line).ok().stdout;
    assert_eq!(table.lines().count(), 4, "{table}");
}

#[test]
fn other_options_apply_to_each_group() {
    let folder = shops();
    // Holes in one shop's rows.
    let mut seen = 0;
    let hole = |line: &str| {
        seen += usize::from(line.contains(",south,"));
        if line.contains(",south,") && seen % 5 == 0 {
            format!(",{}\n", line.split_once(',').unwrap().1)
        } else {
            format!("{line}\n")
        }
    };
    let all = String::from_utf8(folder.read("all.csv")).unwrap().lines().map(hole).collect::<String>();
    let south = all.lines().filter(|line| line.contains(",south,")).map(|line| {
        let fields: Vec<&str> = line.split(',').collect();
        format!("{},{}\n", fields[0], fields[2])
    });
    folder.write("own.csv", "x,y\n".to_owned() + &south.collect::<String>());
    folder.write("holes.csv", all);
    let fit = "-k 2 --threads 1 -q --missing em";
    folder.gmm(&format!("fit holes.csv {fit} --by shop --columns x,y -o all.json")).ok();
    folder.gmm(&format!("fit own.csv {fit} -o own.json")).ok();
    let found = groups(&folder, "all.json");
    let of_south = found.get(&text("south")).unwrap().as_ref().unwrap();
    assert_eq!(of_south.mixture, model(&folder, "own.json").mixture);
    folder.refuses("fit holes.csv -k 2 --by shop --columns x,y", 3, &["missing value", "--missing em"]);
    folder.refuses("fit holes.csv -k 2 --by shop --columns x,y --missing drop", 2, &["leave rows out", "--missing em"]);
    let labels = folder.gmm("predict all.json holes.csv --by shop --missing em").ok().stdout;
    assert_eq!(labels.lines().count(), 181);
    assert!(folder.gmm("score all.json holes.csv --by shop --missing em").ok().stdout.contains("south"));
    // The prior of a file, for each group.
    folder.write("prior.toml", "[means]\nprior = 'normal'\nmean = 3\n");
    let bayes = "-k 2 --bayes dp --threads 1 -q --max-iter 20";
    folder.gmm(&format!("fit all.csv {bayes} --prior=prior.toml --by shop --columns x,y -o file.json")).ok();
    folder.gmm(&format!("fit all.csv {bayes} --mean-prior 3,3 --by shop --columns x,y -o flags.json")).ok();
    assert_eq!(folder.read("file.json"), folder.read("flags.json"));
    folder.refuses(
        "select all.csv -k 1..2 --bayes dp --prior=prior.toml --by shop --columns x,y",
        2,
        &["--prior", "--by"],
    );
}

#[test]
fn malformed_commands_say_what_to_do() {
    let folder = shops();
    folder.gmm("fit north.csv -k 2 -o one.json --quiet").ok();
    folder.gmm("fit all.csv --columns x,y -k 2 --by shop -o models.json --quiet").ok();
    let says = |line: &str, code: i32, what: &str| {
        let run = folder.gmm(line);
        assert_eq!(run.code, Some(code), "{line}: {}", run.stderr);
        assert!(run.stderr.contains(what), "{line}: {}", run.stderr);
    };
    says("predict one.json all.csv --by shop", 2, "has one model");
    says("predict models.json north.csv", 3, "models of groups");
    says("fit all.csv -k 2 --by shop --each-column", 2, "cannot be used with");
    says("fit all.csv -k 2 --by shop --checkpoint c.json", 2, "cannot be used with");
    says("fit all.csv -k 2 --by shop -o models.safetensors", 2, "json file");
    says("fit all.csv -k 2 --by colour", 3, "colour");
    std::fs::write(folder.path("west.csv"), "x,shop,y\n1,west,2\n").expect("a file");
    says("predict models.json west.csv --by shop", 3, "no model for group west: it has east, north, south");
    std::fs::write(folder.path("gap.csv"), "x,shop,y\n1,north,2\n2,,3\n").expect("a file");
    says("fit gap.csv -k 1 --by shop", 3, "line 3");
    std::fs::write(folder.path("slash.csv"), "x,shop\n1,a/b\n2,a/b\n").expect("a file");
    says("fit slash.csv -k 1 --by shop -o folder", 3, "a/b");
    let mut damaged = std::fs::read_to_string(folder.path("models.json")).unwrap();
    damaged = damaged.replacen("\"weights\": [", "\"weights\": [null, ", 1);
    std::fs::write(folder.path("damaged.json"), damaged).expect("a file");
    says("show damaged.json", 3, "groups[0].model.weights");
}
