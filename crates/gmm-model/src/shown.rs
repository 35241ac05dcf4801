//! Formatting of text and numbers for messages and tables.

use std::borrow::Cow;
use std::fmt::Write;

/// Formats text for display: replaces characters that would control a terminal, break the line, change the writing
/// direction or be invisible by escapes (`\n`, `\u{1b}`). Names and paths come from untrusted files.
///
/// ```
/// assert_eq!(gmm_model::shown("height (cm)"), "height (cm)");
/// assert_eq!(gmm_model::shown("a\u{1b}[2Jb\n"), "a\\u{1b}[2Jb\\n");
/// ```
pub fn shown(text: &str) -> Cow<'_, str> {
    if !text.contains(is_hidden) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match c {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\0' => out.push_str("\\0"),
            c if is_hidden(c) => drop(write!(out, "{}", c.escape_unicode())),
            c => out.push(c),
        }
    }
    Cow::Owned(out)
}

/// Whether a character is a control character (C0, DEL, C1), or a Unicode format character that turns, breaks or hides
/// text. Joiners are not hidden: some scripts need them.
fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{fffe}' | '\u{ffff}'
            | '\u{e0000}'..='\u{e007f}')
}

/// Formats a number with the fewest digits that read back to the same value, with an exponent below 1e-4 and from 1e15
/// on; zero is `0`.
///
/// ```
/// use gmm_model::number;
/// assert_eq!([0.0, -0.0, 0.25, 1e-6, 1e300].map(number), ["0", "0", "0.25", "1e-6", "1e300"]);
/// ```
pub fn number(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        1e-4..1e15 => value.to_string(),
        _ if !value.is_finite() => value.to_string(),
        _ => format!("{value:e}"),
    }
}

/// Formats a computed number with three significant digits.
///
/// ```
/// use gmm_model::three_digits;
/// assert_eq!([0.0, 1.0 / 3.0, -3.3306690738754696e-17].map(three_digits), ["0", "0.333", "-3.33e-17"]);
/// ```
pub fn three_digits(value: f64) -> String {
    number(format!("{value:.2e}").parse().unwrap_or(value))
}
