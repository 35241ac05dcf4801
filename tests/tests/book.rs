//! The book: its commands run and print the output shown below them, and its table of contents lists every page.

use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::{fs, iter, thread};

use gmm_tests::{Folder, program, root};
use regex_lite::Regex;

/// Pages of the book, in order.
fn pages() -> Vec<PathBuf> {
    let entries =
        fs::read_dir(root().join("docs/src")).expect("the book is there").map(|e| e.expect("an entry").path());
    let mut pages: Vec<_> = entries.filter(|path| path.extension().is_some_and(|e| e == "md")).collect();
    pages.sort();
    pages
}

/// Fenced blocks of a page: language and text.
fn blocks(page: &Path) -> Vec<(String, String)> {
    blocks_of(&fs::read_to_string(page).expect("a page"))
}

fn blocks_of(text: &str) -> Vec<(String, String)> {
    let block = Regex::new(r"(?ms)^```(\w*)\n(.*?)^```$").expect("a pattern");
    block.captures_iter(text).map(|found| (found[1].to_owned(), found[2].to_owned())).collect()
}

/// Runs commands in a folder with files of the repository's `data/`, with the program on the path; returns their
/// output.
fn run(folder: &Folder, commands: &str) -> String {
    let place = program().parent().expect("the program lies in a folder").display();
    folder.bash(&format!("set -euo pipefail; export PATH=\"{place}:$PATH\"\n{commands}")).ok().stdout
}

#[test]
fn commands_print_what_the_book_shows() {
    // Pages do not depend on one another, and most of their commands use one thread.
    let queue = Mutex::new(pages().into_iter());
    let next = || queue.lock().expect("no page panics while it is taken").next();
    let shown: usize = thread::scope(|scope| {
        let workers = thread::available_parallelism().map_or(1, usize::from);
        let workers: Vec<_> =
            (0..workers).map(|_| scope.spawn(|| iter::from_fn(next).map(|page| check(&page)).sum::<usize>())).collect();
        workers.into_iter().map(|worker| worker.join().unwrap_or_else(|panic| resume_unwind(panic))).sum::<usize>()
    });
    assert!(shown > 3, "{shown} outputs");
}

/// Runs a page's commands in a folder of their own, and compares the outputs that it shows; returns their number.
fn check(page: &Path) -> usize {
    let folder = Folder::new();
    fs::create_dir(folder.path("data")).expect("a new folder");
    for name in ["data/old_faithful.csv", "data/chevron.csv", "data/iris.csv", "data/wine.csv"] {
        fs::copy(root().join(name), folder.path(name)).expect("a copy");
    }
    let mut shown = 0;
    let blocks = blocks(page);
    for (i, (kind, text)) in blocks.iter().enumerate().filter(|(_, (kind, _))| kind == "sh") {
        let printed = run(&folder, text);
        // A text block directly below commands is their expected output.
        if let Some((_, output)) = blocks.get(i + 1).filter(|(below, _)| below == "text") {
            assert_eq!(&printed, output, "{}: {kind}\n{text}", page.display());
            shown += 1;
        }
    }
    shown
}

#[test]
fn every_block_says_what_it_is() {
    let known = ["python", "rust", "sh", "text"];
    for page in pages() {
        for (kind, text) in blocks(&page) {
            assert!(known.contains(&kind.as_str()), "{}: a block of '{kind}':\n{text}", page.display());
        }
    }
}

#[test]
fn the_contents_list_every_page_once() {
    let summary = fs::read_to_string(root().join("docs/src/SUMMARY.md")).expect("contents");
    let link = Regex::new(r"\]\((\S+\.md)\)").expect("a pattern");
    let mut listed: Vec<_> = link.captures_iter(&summary).map(|found| found[1].to_owned()).collect();
    listed.sort();
    let name = |page: &PathBuf| page.file_name().expect("a name").to_string_lossy().into_owned();
    let there: Vec<_> = pages().iter().map(name).filter(|page| page != "SUMMARY.md").collect();
    assert_eq!(listed, there);
    let book: toml::Table = fs::read_to_string(root().join("docs/book.toml")).expect("settings").parse().expect("TOML");
    assert_eq!(book["book"]["src"].as_str(), Some("src"));
}
