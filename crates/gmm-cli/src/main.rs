//! The program `gmm`.
fn main() {}
