//! Repository chores.

mod build_ptx;

fn main() -> anyhow::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.split_first() {
        Some((command, rest)) if command == "build-ptx" => build_ptx::run(rest),
        _ => anyhow::bail!("usage: cargo xtask build-ptx [--check] [--rustc PATH] [--ptxas PATH|auto]"),
    }
}
