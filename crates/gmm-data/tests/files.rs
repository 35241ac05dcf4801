//! The tests of readers and writers, as one test program: linked once. `damaged.rs` is another, since it runs itself again.

mod arrays;
mod atomic;
mod chunks;
mod columnar;
mod columnar_types;
mod common;
mod draws;
mod exchange;
mod groups;
mod large_npy;
mod missing;
mod models;
mod not_tables;
mod onnx;
mod parts;
mod regressions;
mod round_trip;
mod spill;
mod text;
mod text_names;
