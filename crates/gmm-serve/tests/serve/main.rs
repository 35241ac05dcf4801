//! The server as its clients see it: over sockets, in this process.

mod batching;
mod client;
mod fuzzed;
mod inference;
mod limits;
mod matrices;
mod protocol;
mod reloading;
mod stopping;
