//! `gmm completions`: shell completion scripts.

use clap::Args;
use clap_complete::Shell;

use crate::args;
use crate::output::{self, Console};

const EXAMPLES: &str = "\
Examples:
  gmm completions bash > ~/.local/share/bash-completion/completions/gmm
  gmm completions zsh > ~/.zfunc/_gmm
  gmm completions fish > ~/.config/fish/completions/gmm.fish";

/// Print a shell completion script
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CompletionsArgs {
    /// Shell to generate the script for
    shell: Shell,
}

pub(crate) fn run(args: &CompletionsArgs, _console: &Console) -> anyhow::Result<()> {
    // Generated in memory first: the generator panics if it cannot write.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut args::command(), "gmm", &mut script);
    Ok(output::print(&String::from_utf8_lossy(&script))?)
}
