//! `plot`: draws a growth record; needs no GPU.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use gmm_plot::{Record, growth};

use super::point;
use super::points::Sweep;

/// Draws a growth record: one SVG for each sweep, with times above and the floor's share of the time below.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Arguments {
    /// The record, a .csv file that `growth` wrote.
    record: PathBuf,
    /// Folder for growth-n.svg, growth-k.svg and growth-d.svg.
    #[arg(long, default_value = "docs")]
    out: PathBuf,
}

/// Draws the pictures and prints the cliffs.
///
/// # Errors
/// If the record cannot be read, is not a growth record or has no times, or a picture cannot be written.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let Arguments { record: path, out } = arguments;
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let record = Record::parse(&text).with_context(|| format!("in {}", path.display()))?;
    let points = point::points(&record).with_context(|| format!("in {}", path.display()))?;
    std::fs::create_dir_all(out).with_context(|| format!("cannot make {}", out.display()))?;
    let has_times = |sweep: Sweep| points.iter().any(|point| point.sweep == sweep && point.ms.is_some());
    let sweeps: Vec<Sweep> = Sweep::ALL.into_iter().filter(|sweep| has_times(*sweep)).collect();
    ensure!(!sweeps.is_empty(), "{} has no times", path.display());
    for sweep in sweeps {
        let path = out.join(format!("growth-{}.svg", sweep.name()));
        let picture = growth(&record, sweep.name().parse().ok())?;
        std::fs::write(&path, picture.svg()).with_context(|| format!("cannot write {}", path.display()))?;
        println!("{}", path.display());
    }
    super::tell_cliffs(&points);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_becomes_one_picture_for_each_sweep_that_has_times() {
        let folder = tempfile::tempdir().unwrap();
        let record = folder.path().join("r.csv");
        let line =
            |k: usize, ms: &str| format!("k,full,f32,100000,{k},16,ok,{ms},0.01,0.5,1,large,device,5,1000,0,0,0,\n");
        let lines = [line(16, "0.1"), line(32, "0.2"), line(64, "")].concat();
        std::fs::write(&record, format!("{}\n{lines}", point::COLUMNS)).unwrap();
        let out = folder.path().join("docs");
        run(&Arguments { record: record.clone(), out: out.clone() }).unwrap();
        let names: Vec<_> = std::fs::read_dir(&out).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(names, ["growth-k.svg"]);
        let svg = std::fs::read_to_string(out.join("growth-k.svg")).unwrap();
        // In each of two panels, two sizes and the sample beside the name; in one, also the end of the floor.
        assert_eq!((svg.matches("<circle").count(), svg.matches("full f32").count()), (7, 2), "{svg}");
        std::fs::write(&record, format!("{}\n{}", point::COLUMNS, line(16, ""))).unwrap();
        assert!(run(&Arguments { record, out }).unwrap_err().to_string().contains("no times"));
    }
}
