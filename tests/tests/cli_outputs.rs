//! Outputs: folders and pipes that cannot be written, full disks, and files left by killed processes.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use gmm_tests::{Folder, data, program};

const MODEL: &str = r#"{"format":"gmm-model","version":1,"covariance_type":"diag","n_components":2,"n_features":1,
    "feature_names":null,"weights":[0.5,0.5],"means":[[2.0],[4.0]],"covariances":[[1.0],[1.0]]}"#;

fn spawn(folder: &Folder, arguments: &str) -> Child {
    let mut command = Command::new(program());
    command.current_dir(folder.path("")).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.args(arguments.split_whitespace()).spawn().unwrap()
}

fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let started = Instant::now();
    while !done() {
        assert!(started.elapsed() < Duration::from_secs(60), "no {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Sends a signal; returns exit code and standard error. Fails if the process does not end soon.
fn ended(mut child: Child, signal: &str) -> (Option<i32>, String) {
    Command::new("kill").args(["-s", signal, &child.id().to_string()]).status().unwrap();
    wait_for("end after the signal", || child.try_wait().unwrap().is_some());
    let output = child.wait_with_output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

fn pipe(folder: &Folder, name: &str) {
    assert!(Command::new("mkfifo").arg(folder.path(name)).status().unwrap().success());
}

/// Whether the process has a non-empty file open that has no name yet or a temporary name.
fn is_writing(child: &Child, folder: &Folder) -> bool {
    let open = std::fs::read_dir(format!("/proc/{}/fd", child.id())).unwrap().flatten();
    let files = open.filter_map(|fd| Some((std::fs::read_link(fd.path()).ok()?, fd.path())));
    let ours = |path: &Path| path.starts_with(folder.path("").canonicalize().unwrap());
    files.filter(|(to, _)| ours(to)).any(|(_, fd)| fd.metadata().is_ok_and(|m| m.is_file() && m.len() > 0))
}

/// All commands that write, with OUT for the output. Their inputs do not exist: a command that read them first would
/// report that.
const WRITERS: [&str; 18] = [
    "fit no.csv -k 2 -o OUT.json",
    "fit no.csv -k 2 -o OUT.safetensors",
    "fit no.csv -k 2 --checkpoint OUT.json",
    "fit no.csv -k 2 --plot OUT.svg",
    "select no.csv -k 1..2 -o OUT.json",
    "select no.csv -k 1..2 --plot OUT.png",
    "mcmc no.csv -k 2 -o OUT.npz",
    "mcmc no.csv -k 2 -o y.npz --checkpoint OUT.ckpt",
    "predict no.json no.csv -o OUT.csv",
    "score no.json no.csv --per-row -o OUT.npy",
    "loglik no.csv no.json -o OUT.csv",
    "classify no.csv --model a=no.json --model b=no.json -o OUT.csv",
    "sample no.json -n 3 -o OUT.parquet",
    "generate -n 3 -k 2 -d 2 -o OUT.arrow",
    "generate -n 3 -k 2 -d 2 -o y.csv --truth OUT.json",
    "convert no.csv OUT.npy",
    "plot fit no.json no.csv -o OUT.svg",
    "matmul no.csv no.csv -o OUT.csv",
];

#[test]
fn a_folder_that_takes_no_file_is_found_before_anything_is_read_and_named_as_the_user_did() {
    let folder = Folder::with("file", "");
    for writer in WRITERS {
        // Root may write to any folder on a disk, but not even root can create files in /proc/1.
        for (at, why) in
            [("/proc/1/x", "folder '/proc/1'"), ("file/x", "no folder 'file'"), ("none/x", "no folder 'none'")]
        {
            let run = folder.gmm(&writer.replace("OUT", at));
            run.failed(6, &[at, why]);
            assert!(!run.stderr.contains(".tmp"), "{}", run.stderr);
        }
        assert_eq!(folder.files(), ["file"], "{writer}");
    }
}

#[test]
fn an_output_behind_a_link_to_nothing_yet_is_written_where_the_link_leads() {
    let folder = Folder::with("m.json", MODEL);
    std::fs::create_dir(folder.path("there")).unwrap();
    std::os::unix::fs::symlink("there/y.csv", folder.path("y.csv")).unwrap();
    folder.gmm("sample m.json -n 3 -o y.csv").ok();
    assert_eq!(folder.text("there/y.csv").lines().count(), 3);
    std::os::unix::fs::symlink("none/z.csv", folder.path("z.csv")).unwrap();
    folder.gmm("sample m.json -n 3 -o z.csv").failed(6, &["z.csv", "none"]);
}

#[test]
fn a_file_that_is_read_only_is_replaced_as_any_other_and_stays_read_only() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::with("m.json", MODEL);
    folder.write("y.csv", "old");
    std::fs::set_permissions(folder.path("y.csv"), std::fs::Permissions::from_mode(0o444)).unwrap();
    folder.gmm("sample m.json -n 3 -o y.csv").ok();
    assert_eq!(folder.text("y.csv").lines().count(), 3);
    assert_eq!(folder.path("y.csv").metadata().unwrap().permissions().mode() & 0o777, 0o444);
}

#[test]
fn a_pipe_that_nobody_reads_is_waited_for_before_the_work_and_a_signal_ends_that() {
    for (writer, name) in [
        ("fit no.csv -k 2 -o p.json", "p.json"),
        ("sample no.json -n 3 -o p.csv", "p.csv"),
        ("predict no.json no.csv -o p.npy", "p.npy"),
        ("mcmc no.csv -k 1 -o p.npz", "p.npz"),
    ] {
        for (signal, code) in [("INT", 130), ("TERM", 143), ("HUP", 129)] {
            let folder = Folder::new();
            pipe(&folder, name);
            let mut child = spawn(&folder, writer);
            std::thread::sleep(Duration::from_millis(200));
            assert!(child.try_wait().unwrap().is_none(), "{writer} waits, as a shell's > does");
            assert_eq!(ended(child, signal), (Some(code), "error: interrupted\n".to_owned()), "{writer}");
            assert_eq!(folder.files(), [name]);
        }
    }
}

#[test]
fn a_pipe_is_given_what_a_file_would_get() {
    let folder = Folder::with("m.json", MODEL);
    folder.write("x.csv", "1\n2\n4\n");
    for (command, name) in [
        ("sample m.json -n 50000", "p.csv"),
        ("predict m.json x.csv", "p.npy"),
        ("fit x.csv -k 1", "p.json"),
        ("convert x.csv", "p.parquet"),
    ] {
        pipe(&folder, name);
        let option = if command.starts_with("convert") { "" } else { "-o" };
        // The reader starts before the writer, then after it.
        for line in [
            format!("cat {name} > got & $GMM -q {command} {option} {name}; e=$?; wait; exit $e"),
            format!("$GMM -q {command} {option} {name} & sleep 0.2; cat {name} > got; wait $!"),
        ] {
            folder.bash(&line).ok();
            folder.gmm(&format!("-q {command} {option} file-{name}")).ok();
            assert!(folder.read("got") == folder.read(&format!("file-{name}")), "{line}");
        }
    }
    // A reader that closes the pipe early ends the program quietly.
    let run = folder.bash("head -n 1 p.csv & $GMM sample m.json -n 1e7 -o p.csv; e=$?; wait; exit $e").ok();
    assert_eq!((run.stdout.lines().count(), run.stderr.as_str()), (1, ""));
    // A signal ends the writer at once even while it waits for a reader that does not read.
    let reader = Command::new("bash").current_dir(folder.path("")).args(["-c", "exec 3< p.csv; exec sleep 60"]).spawn();
    let mut reader = reader.unwrap();
    let child = spawn(&folder, "sample m.json -n 1e7 -o p.csv");
    std::thread::sleep(Duration::from_millis(400));
    assert_eq!(ended(child, "TERM").0, Some(143));
    reader.kill().unwrap();
    reader.wait().unwrap();
}

#[test]
fn a_pipe_as_input_that_nobody_writes_is_waited_for_and_a_signal_ends_that() {
    for command in ["fit p.csv -k 2 -o m.json", "show p.csv", "predict p.csv p.csv", "convert p.csv y.npy"] {
        let folder = Folder::new();
        pipe(&folder, "p.csv");
        let child = spawn(&folder, command);
        std::thread::sleep(Duration::from_millis(200));
        assert_eq!(ended(child, "INT"), (Some(130), "error: interrupted\n".to_owned()), "{command}");
        assert_eq!(folder.files(), ["p.csv"]);
    }
}

#[test]
fn a_checkpoint_is_a_file() {
    let folder = Folder::new();
    pipe(&folder, "p.json");
    folder.gmm("fit no.csv -k 2 --checkpoint p.json").failed(2, &["--checkpoint must be a regular file"]);
    folder.gmm("mcmc no.csv -k 2 -o y.npz --checkpoint p.json").failed(2, &["--checkpoint must be a regular file"]);
}

#[test]
fn row_55_a_limit_on_file_sizes_is_an_error_of_the_file_and_no_end_by_a_signal() {
    for (name, command) in [
        ("y.csv", "sample m.json -n 2000 -o y.csv"),
        ("y.parquet", "sample m.json -n 20000 -o y.parquet"),
        ("y.json", "fit w.csv -k 6 -o y.json"),
        ("y.json", "fit w.csv -k 6 --checkpoint y.json"),
        ("y.npz", "mcmc f.csv -k 1 --sampler rwm --chains 1 --draws 100 --warmup 50 -o y.npz --overwrite"),
        ("y.svg", "plot fit m.json f.csv -o y.svg"),
    ] {
        let folder = Folder::with(name, "old");
        std::fs::copy(data("old_faithful.csv"), folder.path("f.csv")).unwrap();
        std::fs::copy(data("wine.csv"), folder.path("w.csv")).unwrap();
        folder.gmm("fit f.csv -k 2 -o m.json").ok();
        let before = folder.files();
        let run = folder.bash(&format!("ulimit -f 1; exec $GMM {command}"));
        run.failed(6, &[name, "File too large"]);
        // The zip library must not print its own error when it is dropped.
        assert!(!run.stderr.contains("ZipWriter"), "{}", run.stderr);
        assert_eq!((folder.text(name).as_str(), folder.files()), ("old", before), "{command}");
    }
    // The same if standard output is such a file.
    let folder = Folder::with("m.json", MODEL);
    let run = folder.bash("ulimit -f 1; $GMM sample m.json -n 20000 > y.csv");
    run.failed(6, &["<stdout>", "File too large"]);
}

#[test]
fn a_killed_process_leaves_no_file_that_the_next_does_not_delete() {
    let folder = Folder::with("m.json", MODEL);
    for _ in 0..3 {
        let mut child = spawn(&folder, "generate -n 2e8 -k 2 -d 1 -o x.npy");
        wait_for("file under way", || is_writing(&child, &folder));
        child.kill().unwrap();
        child.wait().unwrap();
    }
    // Only on a file system without unnamed files is there anything to delete.
    folder.gmm("sample m.json -n 3 -o y.csv").ok();
    assert_eq!(folder.files(), ["m.json", "y.csv"]);
}

#[test]
fn a_file_that_a_killed_process_left_is_deleted_by_the_next_and_one_in_use_is_not() {
    let folder = Folder::with("m.json", MODEL);
    folder.write(".gmm-aB3dE9.tmp", "left");
    folder.write(".gmm-inUse1.tmp", "in use");
    folder.write(".gmm-notes.txt", "the user's");
    let in_use = std::fs::File::open(folder.path(".gmm-inUse1.tmp")).unwrap();
    in_use.lock().unwrap();
    folder.gmm("sample m.json -n 3 -o y.csv").ok();
    assert_eq!(folder.files(), [".gmm-inUse1.tmp", ".gmm-notes.txt", "m.json", "y.csv"]);
}

#[test]
fn rows_and_their_truth_appear_both_or_neither() {
    let full = |folder: &Folder, name: &str| std::os::unix::fs::symlink("/dev/full", folder.path(name)).unwrap();
    for (device, other) in [("t.json", "x.npy"), ("x.npy", "t.json")] {
        let folder = Folder::with(other, "old");
        full(&folder, device);
        folder.gmm("generate -n 2000 -k 3 -d 2 -o x.npy --truth t.json").failed(6, &[device, "No space left"]);
        assert_eq!((folder.text(other).as_str(), folder.files().len()), ("old", 2), "{device} is full");
    }
    // The rows are larger than the truth: the first limit stops only the rows, the second both.
    for limit in ["ulimit -f 4", "ulimit -f 0"] {
        let folder = Folder::with("t.json", "old");
        let run = folder.bash(&format!("{limit}; exec $GMM generate -n 2000 -k 3 -d 2 -o x.npy --truth t.json"));
        run.failed(6, &["File too large"]);
        assert_eq!((folder.text("t.json").as_str(), folder.files().len()), ("old", 1), "{limit}");
    }
    let folder = Folder::new();
    let run = folder.bash("exec $GMM generate -n 20 -k 3 -d 2 -o x.npy --truth - > /dev/full");
    run.failed(6, &["<stdout>"]);
    assert!(folder.files().is_empty(), "{:?}", folder.files());
    folder.gmm("generate -n 20 -k 3 -d 2 -o x.npy --truth t.json").ok();
    assert_eq!(folder.files(), ["t.json", "x.npy"]);
}

#[test]
fn help_and_version_on_a_full_standard_output_are_errors_and_on_a_closed_one_are_not() {
    let folder = Folder::new();
    for command in ["--help", "-h", "--version", "-V", "help", "help fit", "fit --help", "mcmc -h", "completions bash"]
    {
        folder.bash(&format!("exec $GMM {command} > /dev/full")).failed(6, &["<stdout>", "No space left"]);
        let run = folder.bash(&format!("$GMM {command} | true; exit ${{PIPESTATUS[0]}}")).ok();
        assert_eq!(run.stderr, "", "{command}");
        assert!(folder.gmm(command).ok().stdout.len() > 3);
    }
}
