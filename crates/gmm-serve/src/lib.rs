//! The scoring server of `gmm serve`: models and resident matrices over HTTP, by the
//! [Open Inference Protocol](https://github.com/kserve/open-inference-protocol) and in plain JSON.
//!
//! A request goes from `connection` (sockets, TLS, limits of time) through `routes` (addresses) and `tensor` (JSON and
//! bytes to numbers) to `infer`, which takes rows to the queue of their model. `batch` evaluates what is queued as one
//! batch, with the bits of each row alone. `registry` reads changed files again.
//!
//! ```
//! use std::io::{Read, Write};
//! use std::sync::Arc;
//!
//! use gmm_host::CpuEngine;
//! use gmm_serve::{ServeOptions, Server};
//!
//! let folder = std::env::temp_dir().join(format!("gmm-serve-example-{}", std::process::id()));
//! std::fs::create_dir_all(&folder)?;
//! let (weights, means) = (ndarray::array![0.5, 0.5], ndarray::array![[0.0], [4.0]]);
//! let covariances = gmm_model::Covariances::Spherical(ndarray::array![1.0, 1.0]);
//! let model = gmm_model::Mixture::new(weights, means, covariances)?;
//! gmm_data::write_model(folder.join("two.json"), &model.into())?;
//!
//! let source = format!("two={}", folder.join("two.json").display()).parse()?;
//! let server = Server::bind(ServeOptions::new(vec![source], Arc::new(CpuEngine::new(1)?)))?;
//! let (address, stopper) = (server.address(), server.stopper());
//! let running = std::thread::spawn(move || server.run());
//!
//! let mut socket = std::net::TcpStream::connect(address)?;
//! let body = r#"{"row": [3.9]}"#;
//! write!(socket, "POST /score HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}", body.len())?;
//! let mut answer = String::new();
//! socket.read_to_string(&mut answer)?;
//! assert!(answer.contains(r#""rows":[{"label":1,"#));
//!
//! stopper.stop();
//! running.join().expect("no panic")?;
//! # std::fs::remove_dir_all(&folder)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod app;
mod batch;
mod conditional;
mod connection;
mod error;
mod grpc;
mod infer;
mod limits;
mod log;
mod matrix;
mod meta;
mod metrics;
mod model;
mod patience;
mod plain;
mod products;
mod registry;
mod routes;
mod server;
mod shared;
mod tensor;
mod tls;
mod trace;

pub use error::Refusal;
pub use limits::Limits;
pub use log::LogLevel;
pub use registry::Source;
pub use server::{ServeError, ServeOptions, Server, Stopper, TlsFiles};
