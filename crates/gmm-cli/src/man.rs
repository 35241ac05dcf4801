//! `gmm man`: manual pages for the program and each command. The command is hidden: it is for packagers.

use std::fs;
use std::io;
use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, Command};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};
use gmm_data::atomic;

use crate::args;
use crate::output::Console;

/// Write the manual pages into a folder: `gmm.1`, and a page for each command such as `gmm-fit.1`
#[derive(Args)]
#[command(hide = true, after_help = "Examples:\n  gmm man ~/.local/share/man/man1")]
pub(crate) struct ManArgs {
    /// Output folder; it is created if needed, and existing pages are replaced
    folder: PathBuf,
}

pub(crate) fn run(args: &ManArgs, _console: &Console) -> anyhow::Result<()> {
    let folder = &args.folder;
    fs::create_dir_all(folder).with_context(|| format!("cannot create the folder '{}'", folder.display()))?;
    // `gmm help` has no page.
    let mut program = args::command().disable_help_subcommand(true);
    // Sets the full names of the commands, such as `gmm-fit`.
    program.build();
    for command in all(&program) {
        let page = Man::new(command.clone()).source(concat!("gmm ", env!("CARGO_PKG_VERSION"))).manual("gmm");
        atomic::write_bytes(&folder.join(page.get_filename()), &text(&page, command)?)?;
    }
    Ok(())
}

/// A command and all its subcommands, without hidden ones.
fn all(command: &Command) -> Vec<&Command> {
    let below = command.get_subcommands().filter(|one| !one.is_hide_set());
    [command].into_iter().chain(below.flat_map(all)).collect()
}

/// A page as roff.
fn text(page: &Man, command: &Command) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    page.render_title(&mut text)?;
    page.render_name_section(&mut text)?;
    page.render_synopsis_section(&mut text)?;
    page.render_description_section(&mut text)?;
    page.render_options_section(&mut text)?;
    if command.has_subcommands() {
        page.render_subcommands_section(&mut text)?;
    }
    if let Some(after) = command.get_after_help() {
        examples(&after.to_string()).to_writer(&mut text)?;
    }
    Ok(text)
}

/// What the help ends with, line by line as it is there: `Man` would fill the lines, as it does with prose.
fn examples(after: &str) -> Roff {
    let mut section = Roff::new();
    section.control("SH", ["EXAMPLES"]).control("nf", []);
    for line in after.strip_prefix("Examples:\n").unwrap_or(after).lines() {
        section.text([roman(line)]);
    }
    section.control("fi", []);
    section
}
