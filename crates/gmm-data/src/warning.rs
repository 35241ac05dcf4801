//! Warnings about tables that were read without an error.

use std::fmt;

/// A warning that a table was read, but possibly not as intended. Its `Display` is one line: the file, the oddity, and
/// what to write if the reading is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataWarning {
    /// The file as the user named it; empty for a table that was not read from a file.
    pub path: String,
    /// What is odd, in which column, and what to write instead.
    pub text: String,
}

impl DataWarning {
    /// A warning from a reader, without the file's name: [`Table::of`](crate::Table::of) adds it.
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self { path: String::new(), text: text.into() }
    }
}

impl fmt::Display for DataWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_empty() { f.write_str(&self.text) } else { write!(f, "{}: {}", self.path, self.text) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_is_one_line_with_the_file_before_it_where_there_is_one() {
        let mut warning = DataWarning::new("column 'id' counts the rows");
        assert_eq!(warning.to_string(), "column 'id' counts the rows");
        "x.csv".clone_into(&mut warning.path);
        assert_eq!(warning.to_string(), "x.csv: column 'id' counts the rows");
    }
}
