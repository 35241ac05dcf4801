//! The GPU engine against the naive reference if that is fast enough, else against the CPU engine in f64.
//!
//! A program with its own `main`. Sections run one after another on one device. Each prints its largest error relative
//! to the allowed one; a table follows at the end. Without a device it prints `skipped: no CUDA device` and succeeds,
//! unless `GMM_REQUIRE_GPU=1`. Arguments: words that a section's name must contain; `--quick` for only small sizes, for
//! use under a sanitizer; `--list`.

mod bayes;
#[path = "../common/mod.rs"]
mod common;
mod compare;
mod data;
mod faults;
mod fits;
mod hand_over;
mod large;
mod likelihood;
mod loops;
mod many;
mod measured;
mod precisions;
mod products;
#[path = "../common/sentinels.rs"]
mod sentinels;
mod small;
mod uniform;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::Instant;

use gmm_host::{CpuEngine, CudaEngine, Engine, cuda_report};

use compare::Tally;

/// The arguments of every section.
struct Bench {
    gpu: CudaEngine,
    cpu: CpuEngine,
    quick: bool,
}

/// A section of the tests: its name and its function.
type Section = (&'static str, fn(&Bench, &mut Tally));

const SECTIONS: [Section; 37] = [
    ("rows 1 to 300", small::every_row_count),
    ("dimensions 1 to 70, and around 96, 128, 256", small::every_dimension),
    ("components 1 to 40, and around 64, 128, 256; 300", small::every_component_count),
    ("tiles and chunks", small::around_tiles),
    ("offsets 1e4 (f32), 1e8 (f64), and scales", small::offsets_and_scales),
    ("other modules than the best", small::every_module),
    ("rows far from every mean", small::underflow),
    ("sentinels among ordinary rows", fits::sentinels),
    ("factors of precisions", precisions::factors),
    ("moved between threads", small::threads),
    ("the same bits again", fits::same_bits),
    ("loop on the device: small sizes", loops::small),
    ("loop on the device: offsets", loops::offsets),
    ("loop on the device: against the CPU engine", loops::large),
    ("loop on the device: fast", loops::fast),
    ("fits as on the CPU", fits::as_on_the_cpu),
    ("fits from k-means", fits::from_k_means),
    ("Lloyd's iterations on the device", fits::lloyd),
    ("fits with uniform noise", uniform::noise),
    ("variational Bayes in the loop", bayes::in_the_loop),
    ("many small fits in one call", many::many),
    ("rows with missing values", many::missing),
    ("rows with measurement errors", measured::errors),
    ("likelihoods: every form of the kernels", likelihood::small),
    ("likelihoods: other modules than the best", likelihood::every_module),
    ("likelihoods: large sizes", likelihood::large),
    ("likelihoods: steps of one component", likelihood::components),
    ("products: every form of the kernels", products::small),
    ("products: large sizes", products::large),
    ("products: memory", products::memory),
    ("N 1e5 to 3e6 against the CPU engine", large::many_rows),
    ("K to 300, d to 256, against the CPU engine", large::wide),
    ("values that overflow, ordinals that are not there", faults::refused),
    ("not finite", faults::not_finite),
    ("uploads", faults::upload_rates),
    ("more than 2^31 elements", large::beyond_31_bits),
    ("memory runs out, and comes back", faults::memory),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.iter().any(|a| a == "--list") {
        SECTIONS.iter().for_each(|(name, _)| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    let words: Vec<&String> = arguments.iter().filter(|a| !a.starts_with('-')).collect();
    let gpu = match CudaEngine::new(0) {
        Ok(gpu) => gpu,
        Err(why) => return without_device(&why),
    };
    print!("{}", cuda_report());
    println!("{}: {}", gpu.name(), gpu.description());
    let cpu = CpuEngine::new(0).expect("threads");
    println!("{}: {}", cpu.name(), cpu.description());
    let bench = Bench { gpu, cpu, quick: arguments.iter().any(|a| a == "--quick") };
    let started = Instant::now();
    let chosen = SECTIONS.iter().filter(|(name, _)| words.iter().all(|w| name.contains(w.as_str())));
    let rows: Vec<Row> = chosen.map(|section| run(&bench, section)).collect();
    table(&rows);
    let failed = rows.iter().filter(|r| !r.passed).count();
    println!("{} sections, {failed} failed, {:.1} s", rows.len(), started.elapsed().as_secs_f64());
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn without_device(why: &gmm_host::Error) -> ExitCode {
    println!("skipped: no CUDA device: {why}");
    match std::env::var("GMM_REQUIRE_GPU") {
        Ok(value) if value == "1" => {
            eprintln!("error: GMM_REQUIRE_GPU is 1");
            ExitCode::FAILURE
        }
        _ => ExitCode::SUCCESS,
    }
}

/// A row of the table.
struct Row {
    name: &'static str,
    passed: bool,
    tally: Tally,
    seconds: f64,
}

fn run(bench: &Bench, (name, section): &Section) -> Row {
    println!("== {name}");
    let (started, mut tally) = (Instant::now(), Tally::default());
    let passed = catch_unwind(AssertUnwindSafe(|| section(bench, &mut tally))).is_ok() && tally.failures.is_empty();
    for failure in tally.failures.iter().take(20) {
        println!("   FAILED {failure}");
    }
    if tally.failures.len() > 20 {
        println!("   FAILED and {} more", tally.failures.len() - 20);
    }
    Row { name, passed, tally, seconds: started.elapsed().as_secs_f64() }
}

fn table(rows: &[Row]) {
    println!("\n| section | cases | numbers compared | worst error / allowed | s | |");
    println!("|---|---:|---:|---:|---:|---|");
    for row in rows {
        let Tally { cases, numbers, worst, worst_at, .. } = &row.tally;
        let (seconds, verdict) = (row.seconds, if row.passed { "ok" } else { "FAILED" });
        println!("| {} | {cases} | {numbers} | {worst:.3} {worst_at} | {seconds:.1} | {verdict} |", row.name);
    }
}
