//! The server as its clients see it: over sockets, in this process.

mod batching;
mod client;
mod conditionals;
mod fuzzed;
mod grpc;
mod inference;
mod limits;
mod matrices;
mod protocol;
mod reloading;
mod scorer;
#[cfg(target_os = "linux")]
mod shared;
mod stopping;
mod tls;
