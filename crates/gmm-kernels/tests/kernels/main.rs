//! Every kernel's body, run by the emulator, against the reference of `gmm-model`.

mod alone;
mod compare;
mod data;
mod draw_rows;
mod emulator;
mod evaluate;
mod fused;
mod harness;
mod k_means;
mod largest;
mod lloyd;
mod math;
mod mixing;
mod moves;
mod nearby_sums;
mod pass;
mod products;
mod scores;
mod slices;
mod sort;
mod trials;
mod words;
