//! Trace ids: that of the caller's `traceparent` (W3C Trace Context, level 1), else a new one.

use std::hash::{BuildHasher, RandomState};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// A trace, and this server's part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Trace {
    id: u128,
    span: u64,
    flags: u8,
}

impl Trace {
    /// The trace that the header names, or a new one if there is none or it is not valid.
    pub(crate) fn of(header: Option<&[u8]>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        static OF_PROCESS: OnceLock<[u64; 2]> = OnceLock::new();
        let [high, low] = OF_PROCESS.get_or_init(|| [0, 1].map(|i: u64| RandomState::new().hash_one(i)));
        // A multiplication by an odd number is a bijection, so ids differ as the counter does.
        let span = (NEXT.fetch_add(1, Ordering::Relaxed) ^ low).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let (id, flags) =
            header.and_then(parse).unwrap_or((u128::from(*high) << 64 | u128::from(span.rotate_left(32)), 0));
        Self { id, span, flags }
    }

    /// The 32 hexadecimal digits of the trace.
    pub(crate) fn id(self) -> String {
        format!("{:032x}", self.id)
    }

    /// The header of the answer.
    pub(crate) fn header(self) -> String {
        format!("00-{:032x}-{:016x}-{:02x}", self.id, self.span, self.flags)
    }
}

/// The trace id and the flags of `00-TRACE-SPAN-FLAGS`; later versions may have more behind it.
fn parse(header: &[u8]) -> Option<(u128, u8)> {
    let text = std::str::from_utf8(header).ok()?;
    let mut parts = text.split('-');
    let digits = |part: Option<&str>, length: usize| {
        let lower = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
        part.filter(|part| part.len() == length && part.bytes().all(lower)).map(str::to_owned)
    };
    let version = digits(parts.next(), 2)?;
    let trace = u128::from_str_radix(&digits(parts.next(), 32)?, 16).ok()?;
    let span = u64::from_str_radix(&digits(parts.next(), 16)?, 16).ok()?;
    let flags = u8::from_str_radix(&digits(parts.next(), 2)?, 16).ok()?;
    let is_whole = version != "00" || parts.next().is_none();
    (version != "ff" && trace != 0 && span != 0 && is_whole).then_some((trace, flags & 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

    #[track_caller]
    fn check(header: &str, expected: Option<&str>) {
        let found = parse(header.as_bytes()).map(|(id, _)| format!("{id:032x}"));
        assert_eq!(found.as_deref(), expected, "{header}");
    }

    #[test]
    fn a_trace_of_the_caller_is_taken_over_if_it_is_valid() {
        // The example and the rules of W3C Trace Context, sections 3.2.2 and 3.2.3.
        check(&format!("00-{TRACE}-00f067aa0ba902b7-01"), Some(TRACE));
        check(&format!("cc-{TRACE}-00f067aa0ba902b7-01-what-the-future-holds"), Some(TRACE));
        check(&format!("00-{TRACE}-00f067aa0ba902b7-01-more"), None);
        check(&format!("ff-{TRACE}-00f067aa0ba902b7-01"), None);
        check(&format!("00-{TRACE}-0000000000000000-01"), None);
        check(&format!("00-{}-00f067aa0ba902b7-01", "0".repeat(32)), None);
        check(&format!("00-{}-00f067aa0ba902b7-01", TRACE.to_uppercase()), None);
        check("00-4bf92f", None);
        check("", None);
    }

    #[test]
    fn two_requests_without_a_trace_get_different_ids() {
        assert_ne!(Trace::of(None).id(), Trace::of(None).id());
        assert_eq!(Trace::of(None).header().len(), 55);
    }
}
