//! The log: a JSON object a line, to standard error.

use std::io::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value};

/// How much is logged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// Only errors of the server.
    Error,
    /// Also what it starts, reloads, refuses to load, and stops.
    #[default]
    Info,
    /// Also every request.
    Requests,
}

/// Writes lines up to a level.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Log(pub(crate) LogLevel);

impl Log {
    /// Whether every request is logged.
    pub(crate) fn has_requests(self) -> bool {
        self.0 >= LogLevel::Requests
    }

    pub(crate) fn error(self, message: &str, fields: Value) {
        line("error", message, fields);
    }

    pub(crate) fn warn(self, message: &str, fields: Value) {
        if self.0 >= LogLevel::Info {
            line("warn", message, fields);
        }
    }

    pub(crate) fn info(self, message: &str, fields: Value) {
        if self.0 >= LogLevel::Info {
            line("info", message, fields);
        }
    }
}

/// Writes a line at once, so that lines of several threads do not mix. `fields` is an object.
fn line(level: &str, message: &str, fields: Value) {
    let mut all = Map::new();
    let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
    all.insert("time".to_owned(), ((time * 1e6).round() / 1e6).into());
    all.insert("level".to_owned(), level.into());
    all.insert("message".to_owned(), message.into());
    if let Value::Object(fields) = fields {
        all.extend(fields);
    }
    let mut text = Value::Object(all).to_string();
    text.push('\n');
    // Without standard error there is no log.
    let _closed = std::io::stderr().write_all(text.as_bytes());
}
