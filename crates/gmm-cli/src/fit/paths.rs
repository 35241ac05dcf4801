//! Checks of the files that a fit writes, before it begins.

use std::path::{Path, PathBuf};

use super::FitArgs;
use crate::checkpoint::Saved;
use crate::output::{self, Console};
use crate::plot;

/// Checks the output paths. `-o` and `--checkpoint` may be the same file as `--init`: continuing a fit replaces it.
pub(super) fn check_paths(args: &FitArgs) -> anyhow::Result<()> {
    let files = args.input.source().files()?;
    let inputs: Vec<&Path> = files.iter().map(PathBuf::as_path).collect();
    if let Some(path) = &args.output {
        output::check_model_path(path)?;
        output::check_apart(path, &inputs)?;
        output::check_json_apart(args.json, path)?;
    }
    if let Some(path) = &args.plot {
        plot::check_option(path, &inputs)?;
    }
    for path in args.checkpoint.iter().chain(&args.resume) {
        output::check_checkpoint(path)?;
        output::check_model_path(path)?;
        output::check_apart(path, &inputs)?;
    }
    Ok(())
}

/// Warns if a checkpoint that this fit will replace is that of an unfinished one.
pub(super) fn warn_of_unfinished(path: &Path, console: &Console) {
    if Saved::read(path).is_ok_and(|saved| saved.state.running.is_some()) {
        let file = path.display();
        console.warn(&format!("{file} holds an unfinished fit, which this one replaces; --resume {file} continues it"));
    }
}
