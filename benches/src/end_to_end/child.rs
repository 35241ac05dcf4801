//! A process from its start to its end: wall-clock time, output, and memory.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// Time between two looks at a process's memory: a peak that lasts less may be missed.
const STEP: Duration = Duration::from_millis(1);

/// A process that has ended well.
pub(crate) struct Outcome {
    /// From the start of the process to its end.
    pub(crate) seconds: f64,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    /// Most bytes of memory at once that are not a file's; `None` if it was not watched, or the system does not report
    /// it.
    pub(crate) anonymous: Option<u64>,
}

/// Runs a command to its end. `watched` reads its memory all the while, which costs time: a watched run is not timed.
///
/// # Errors
/// If it cannot be started or fails; the error has the end of its standard error.
pub(crate) fn run(command: &mut Command, watched: bool) -> Result<Outcome> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let name = command.get_program().to_string_lossy().into_owned();
    let begin = Instant::now();
    let child = command.spawn().with_context(|| format!("cannot start {name}"))?;
    let (id, ended) = (child.id(), AtomicBool::new(false));
    let (output, anonymous) = std::thread::scope(|scope| {
        let watch = watched.then(|| scope.spawn(|| peak(id, &ended)));
        let output = child.wait_with_output();
        ended.store(true, Ordering::Relaxed);
        (output, watch.and_then(|watch| watch.join().ok().flatten()))
    });
    let seconds = begin.elapsed().as_secs_f64();
    let output = output.with_context(|| format!("cannot wait for {name}"))?;
    let [stdout, stderr] = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    if !output.status.success() {
        let end: Vec<&str> = stderr.lines().rev().take(3).collect();
        // Without its folder, since the error may go to a record.
        let name = Path::new(&name).file_name().unwrap_or_default().display();
        bail!("{name} failed ({}): {}", output.status, end.into_iter().rev().collect::<Vec<_>>().join("; "));
    }
    Ok(Outcome { seconds, stdout, stderr, anonymous })
}

/// The largest anonymous memory of a process until `ended`, in bytes.
fn peak(id: u32, ended: &AtomicBool) -> Option<u64> {
    let mut peak = None;
    while !ended.load(Ordering::Relaxed) {
        peak = peak.max(anonymous(&id.to_string()));
        std::thread::sleep(STEP);
    }
    peak
}

/// Bytes of a process's memory that are not a file's: `RssAnon` of `/proc/ID/status`, on Linux only.
fn anonymous(id: &str) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    Some(line.trim().trim_end_matches("kB").trim().parse::<u64>().ok()? * 1024)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_timed_and_a_failed_one_tells_its_last_words() {
        let shell = |script: &str, watched| run(Command::new("sh").args(["-c", script]), watched);
        let done = shell("sleep 0.05; echo out; echo err >&2", true).unwrap();
        assert!(done.seconds >= 0.05 && done.anonymous.is_some_and(|bytes| bytes > 0));
        assert_eq!((done.stdout.as_str(), done.stderr.as_str()), ("out\n", "err\n"));
        assert!(shell("true", false).unwrap().anonymous.is_none());
        let error = shell("echo no such file >&2; exit 3", false).err().unwrap().to_string();
        assert!(error.contains("no such file"), "{error}");
    }

    #[test]
    fn memory_of_this_process_is_at_least_what_it_has_just_filled() {
        let filled = vec![1_u8; 32 << 20];
        assert!(anonymous("self").unwrap() >= std::hint::black_box(&filled).len() as u64);
    }
}
