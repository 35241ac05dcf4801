//! Data sets and models on disk.
