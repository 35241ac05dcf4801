//! What a client may ask of the server.

use std::time::Duration;

use crate::Refusal;

/// Limits of requests and connections.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of a body.
    pub body: usize,
    /// Rows, or questions, of a request.
    pub rows: usize,
    /// Time until a request is answered, and until the head of one has arrived.
    pub time: Duration,
    /// Open connections.
    pub connections: usize,
}

/// Bytes of an answer for each byte of the largest body: the products of a few questions with a matrix are larger than
/// they are.
const ANSWER: usize = 4;

impl Limits {
    /// 64 MiB, a million rows, 30 s, 4096 connections.
    pub const DEFAULT: Self =
        Self { body: 64 << 20, rows: 1_000_000, time: Duration::from_secs(30), connections: 4096 };

    pub(crate) fn check_rows(&self, rows: usize) -> Result<(), Refusal> {
        if rows <= self.rows {
            return Ok(());
        }
        let most = self.rows;
        Err(Refusal::too_large(format!("{rows} rows, and at most {most} are served at once: send them in parts")))
    }

    /// `numbers` are those of an answer.
    pub(crate) fn check_answer(&self, numbers: usize) -> Result<(), Refusal> {
        let most = self.body.saturating_mul(ANSWER) / size_of::<f64>();
        if numbers <= most {
            return Ok(());
        }
        let message = format!("the answer would have {numbers} numbers, and may have {most}: ask for fewer at once");
        Err(Refusal::too_large(message))
    }

    pub(crate) fn body_refusal(&self) -> Refusal {
        Refusal::too_large(format!(
            "the body is larger than {} bytes: send it in parts, or raise --max-body",
            self.body
        ))
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self::DEFAULT
    }
}
