//! Times passes of the CPU engine: `time_pass N K D KIND f32|f64 [THREADS]`.

#[path = "../tests/common/mod.rs"]
mod common;

use gmm_host::{CpuEngine, Engine, shift};
use gmm_model::Dataset;

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let number = |i: usize| args[i].parse::<usize>().expect("a number");
    let (n, k, d) = (number(1), number(2), number(3));
    let kind = args[4].parse().expect("a kind");
    let precision = args[5].parse().expect("a precision");
    let mixture = common::mixture(kind, k, d, 0.0, 1.0, 1);
    let data = Dataset::new(common::rows(n, d, 0.0, 1.0, 1)).unwrap();
    let engine = CpuEngine::new(if args.len() > 6 { number(6) } else { 0 }).unwrap();
    let mut rows = engine.load(&data, precision, &shift::of_data(&data)).unwrap();
    let time = |run: &mut dyn FnMut()| {
        let mut times: Vec<f64> = (0..15)
            .map(|_| {
                let start = cpu_ms();
                run();
                cpu_ms() - start
            })
            .collect();
        times.sort_by(f64::total_cmp);
        times
    };
    let e = time(&mut || {
        std::hint::black_box(rows.evaluate(&mixture, gmm_host::Wanted::default()).unwrap());
    });
    let times = time(&mut || drop(std::hint::black_box(rows.pass(&mixture).unwrap())));
    println!("E alone: least {:.3} ms", e[0]);
    println!("{} {n} {k} {d}: median {:.3} ms, least {:.3} ms ({})", args[4], times[7], times[0], engine.description());
}

/// Milliseconds on a processor, of all threads.
fn cpu_ms() -> f64 {
    let tasks = std::fs::read_dir("/proc/self/task").expect("Linux").flatten();
    let ns = |task: std::fs::DirEntry| {
        let text = std::fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
        text.split(' ').next().and_then(|v| v.parse::<f64>().ok()).unwrap_or(0.0)
    };
    tasks.map(ns).sum::<f64>() / 1e6
}
