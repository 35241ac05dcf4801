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
mod stopping;
mod tls;
