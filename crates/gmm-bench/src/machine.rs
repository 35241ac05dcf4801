//! Describes the machine and the software that measurements were made with.

use std::path::Path;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

/// Instruction sets that are recorded, because they explain a speed.
const TOLD_FLAGS: [&str; 6] = ["sse4_2", "avx2", "fma", "avx512f", "asimd", "sve"];

/// Processor, system and compiler.
pub struct Machine {
    /// Folder name: processor and cores, in lower case.
    pub slug: String,
    /// Name, family and model of the processor.
    pub processor: String,
    /// Cores that this process may use.
    pub cores: usize,
    /// The instruction sets that it has, of those that explain a speed.
    pub flags: String,
    /// Operating system.
    pub system: String,
    /// The compiler on the path.
    pub compiler: String,
    /// Load averages at the start.
    pub load: String,
}

impl Machine {
    /// Facts for the head of a record.
    pub fn facts(&self) -> [(&'static str, String); 3] {
        let Self { processor, cores, flags, system, load, .. } = self;
        [
            ("processor", format!("{processor}, {cores} cores")),
            ("instructions", flags.clone()),
            ("system", format!("{system}, load {load}")),
        ]
    }
}

/// Queries the system; properties that cannot be found are `unknown`.
pub fn describe() -> Machine {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field = |name: &str| {
        let line = info.lines().find(|line| line.split(':').next().is_some_and(|key| key.trim() == name));
        line.and_then(|line| line.split_once(':')).map_or("unknown", |(_, value)| value.trim())
    };
    let model = match field("model name") {
        "unknown" => output("sysctl", &["-n", "machdep.cpu.brand_string"]),
        name => name.to_owned(),
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let features = format!("{} {}", field("flags"), field("Features"));
    let has = |flag: &&str| features.split_whitespace().any(|f| f == *flag);
    Machine {
        slug: slug(&format!("{model} {cores}c")),
        processor: format!("{model}, family {} model {}", field("cpu family"), field("model")),
        cores,
        flags: TOLD_FLAGS.into_iter().filter(|flag| has(flag)).collect::<Vec<_>>().join(" "),
        system: output("uname", &["-srm"]),
        compiler: output("rustc", &["--version"]),
        load: std::fs::read_to_string("/proc/loadavg").unwrap_or_else(|_| "unknown".into()).trim().to_owned(),
    }
}

/// The commit of the working tree, followed by `-dirty` if there are uncommitted changes.
pub fn commit(root: &Path) -> String {
    output("git", &["-C", &root.to_string_lossy(), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"])
}

/// Today's date in UTC, as `2026-01-31`.
pub fn today() -> String {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    date(seconds / 86_400)
}

/// The date `days` days after 1970-01-01.
fn date(days: u64) -> String {
    let leap = |y: u64| (y.is_multiple_of(4) && !y.is_multiple_of(100)) || y.is_multiple_of(400);
    let (mut year, mut rest) = (1970, days);
    while rest >= 365 + u64::from(leap(year)) {
        rest -= 365 + u64::from(leap(year));
        year += 1;
    }
    let february = 28 + u64::from(leap(year));
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30] {
        if rest < length {
            break;
        }
        rest -= length;
        month += 1;
    }
    format!("{year}-{month:02}-{:02}", rest + 1)
}

/// A text as a folder name.
pub fn slug(text: &str) -> String {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join("-").to_lowercase()
}

/// The standard output of a program, or `unknown` if it cannot be started or fails.
pub fn output(program: &str, arguments: &[&str]) -> String {
    let done = Command::new(program).args(arguments).output().ok().filter(|done| done.status.success());
    done.map_or_else(|| "unknown".to_owned(), |done| String::from_utf8_lossy(&done.stdout).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_count_leap_years() {
        assert_eq!(date(0), "1970-01-01");
        assert_eq!(date(19_782), "2024-02-29");
        assert_eq!(date(20_453), "2025-12-31");
        assert_eq!(date(20_454), "2026-01-01");
    }

    #[test]
    fn a_machine_is_a_folder_name() {
        assert_eq!(slug("AMD EPYC 9654 (96-Core) 2c"), "amd-epyc-9654-96-core-2c");
    }
}
