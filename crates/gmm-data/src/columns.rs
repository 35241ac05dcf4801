//! Resolves a column selection: names, indices, ranges and exclusions.

use crate::{ColumnError, ReadOptions};

impl ReadOptions {
    /// Returns the indices of the columns to read, of `d` columns with these names. `usual` are the columns read if
    /// none are selected; if the selection consists of exclusions only, those are removed from `usual`.
    ///
    /// # Errors
    /// As [`Table::indices`](crate::Table::indices).
    pub(crate) fn choose(
        &self,
        names: Option<&[String]>,
        d: usize,
        usual: Vec<usize>,
    ) -> Result<Vec<usize>, ColumnError> {
        let columns = Columns { names, d };
        let mut chosen = match &self.columns {
            Some(wanted) => columns.choose(wanted, usual)?,
            None => usual,
        };
        if let Some(last) = &self.last {
            let last = columns.one(last)?;
            chosen.retain(|&i| i != last);
            chosen.push(last);
        }
        Ok(chosen)
    }
}

/// Returns the indices, below `d`, of the columns in `wanted`, whose entries have the forms of
/// [`ReadOptions::columns`].
///
/// # Errors
/// As [`Table::indices`](crate::Table::indices).
pub fn find_columns<S: AsRef<str>>(
    wanted: &[S],
    names: Option<&[String]>,
    d: usize,
) -> Result<Vec<usize>, ColumnError> {
    Columns { names, d }.choose(wanted, (0..d).collect())
}

/// The columns to select from.
#[derive(Clone, Copy)]
struct Columns<'a> {
    names: Option<&'a [String]>,
    d: usize,
}

impl Columns<'_> {
    fn choose<S: AsRef<str>>(self, wanted: &[S], usual: Vec<usize>) -> Result<Vec<usize>, ColumnError> {
        let (mut taken, mut excluded) = (vec![false; self.d], vec![false; self.d]);
        let (mut found, mut only_excluded) = (Vec::new(), !wanted.is_empty());
        for word in wanted.iter().map(AsRef::as_ref) {
            // A word that is a column's name is not an exclusion, even if it begins with !.
            if let (None, Some(out)) = (self.named(word)?, word.trim_start().strip_prefix('!')) {
                self.some(out)?.for_each(|i| excluded[i] = true);
                continue;
            }
            only_excluded = false;
            for index in self.some(word)? {
                if std::mem::replace(&mut taken[index], true) {
                    return Err(ColumnError::Twice { wanted: word.to_owned(), available: self.available(), d: self.d });
                }
                found.push(index);
            }
        }
        if only_excluded {
            found = usual;
        }
        found.retain(|&i| !excluded[i]);
        if found.is_empty() {
            return Err(ColumnError::None { available: self.available(), d: self.d });
        }
        Ok(found)
    }

    /// Resolves a word to one column, or to a range of columns including both ends.
    fn some(self, word: &str) -> Result<std::ops::RangeInclusive<usize>, ColumnError> {
        let alone = match self.one(word) {
            Ok(index) => return Ok(index..=index),
            Err(ColumnError::Unknown { .. }) => self.unknown(word),
            Err(other) => return Err(other),
        };
        // Names may contain dots, so every `..` is tried as the separator.
        for (at, _) in word.match_indices("..") {
            let (from, to) = (word[..at].trim(), word[at + 2..].trim());
            let to = to.strip_prefix('=').unwrap_or(to);
            let from = if from.is_empty() { Ok(0) } else { self.one(from) };
            let to = if to.is_empty() { Ok(self.d.saturating_sub(1)) } else { self.one(to) };
            match (from, to) {
                (Ok(from), Ok(to)) if from <= to => return Ok(from..=to),
                (Ok(_), Ok(_)) => return Err(ColumnError::Backwards { wanted: word.to_owned() }),
                // Report the end that is unknown: that says more than reporting the whole word.
                (Ok(_), Err(e)) | (Err(e), Ok(_)) => return Err(e),
                (Err(_), Err(_)) => {}
            }
        }
        Err(alone)
    }

    /// Resolves a word to one column: by exact name, by quoted name, by name without the blanks around it, or by index.
    fn one(self, word: &str) -> Result<usize, ColumnError> {
        if let Some(index) = self.named(word)? {
            return Ok(index);
        }
        let trimmed = word.trim();
        let inner = trimmed.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
        let index = match inner {
            Some(name) => self.named(&name.replace("\"\"", "\""))?,
            None if trimmed != word => return self.one(trimmed),
            None => match self.only(word, |name| !word.is_empty() && name.trim() == word)? {
                Some(index) => Some(index),
                // `parse` also accepts "+1", which is not meant as an index.
                None => word.parse::<usize>().ok().filter(|&i| i < self.d && !word.starts_with('+')),
            },
        };
        index.ok_or_else(|| self.unknown(word))
    }

    /// The column of that exact name, if there is one.
    fn named(self, name: &str) -> Result<Option<usize>, ColumnError> {
        self.only(name, |n| n == name)
    }

    /// The only column whose name satisfies `fits`; an error if several do.
    fn only(self, word: &str, fits: impl Fn(&str) -> bool) -> Result<Option<usize>, ColumnError> {
        let mut found = (0..).zip(self.names.unwrap_or_default()).filter(|(_, name)| fits(name)).map(|(i, _)| i);
        match (found.next(), found.next()) {
            (Some(_), Some(_)) => Err(ColumnError::Ambiguous { wanted: word.to_owned(), d: self.d }),
            (index, _) => Ok(index),
        }
    }

    fn unknown(self, word: &str) -> ColumnError {
        ColumnError::Unknown { wanted: word.to_owned(), available: self.available(), d: self.d }
    }

    fn available(self) -> Vec<String> {
        self.names.map(<[String]>::to_vec).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 6] = ["id", "income, net", "a", "b", "c..d", "!x"];

    fn of(wanted: &[&str]) -> Result<Vec<usize>, ColumnError> {
        find_columns(wanted, Some(&NAMES.map(str::to_owned)), NAMES.len())
    }

    #[test]
    fn columns_are_chosen_by_name_index_range_and_exclusion() {
        for (wanted, indices) in [
            (&["a", "id"][..], &[2, 0][..]),
            (&["2..3"], &[2, 3]),
            (&["id..a", "5"], &[0, 1, 2, 5]),
            (&["a..\"!x\""], &[2, 3, 4, 5]),
            (&["3.."], &[3, 4, 5]),
            (&["..1"], &[0, 1]),
            (&["\"income, net\"", " a "], &[1, 2]),
            (&["!id"], &[1, 2, 3, 4, 5]),
            (&["!0..2", "!!x"], &[3, 4]),
            (&["a..5", "!b"], &[2, 4, 5]),
            (&["c..d"], &[4]),
            (&["b..c..d"], &[3, 4]),
            (&["!x"], &[5]),
        ] {
            assert_eq!(of(wanted).unwrap(), indices, "{wanted:?}");
        }
    }

    #[test]
    fn blanks_around_a_name_may_be_left_out_where_one_column_fits() {
        let of = |names: [&str; 3], wanted: &str| {
            find_columns(&[wanted], Some(&names.map(str::to_owned)), 3).map_err(|e| e.to_string())
        };
        for wanted in [" a", "a", "\" a\"", "!b,!c"] {
            let words: Vec<&str> = wanted.split(',').collect();
            assert_eq!(find_columns(&words, Some(&[" a", "b", "c "].map(str::to_owned)), 3), Ok(vec![0]), "{wanted}");
        }
        assert_eq!(of(["a", " a", "b"], "a"), Ok(vec![0]));
        assert_eq!(of(["a", " a", "b"], " a"), Ok(vec![1]));
        assert_eq!(of(["x", " 0", "b"], "0"), Ok(vec![1]));
        assert_eq!(of(["  ", "a", "b"], ""), Err("no column '': there are \"  \", a, b".to_owned()));
        assert_eq!(of([" a", "b", "c"], "\"a\""), Err("no column '\"a\"': there are \" a\", b, c".to_owned()));
        assert!(of([" a", "a ", "b"], "a").unwrap_err().contains("several columns are called 'a'"));
    }

    #[test]
    fn columns_that_are_not_there_or_twice_or_none_are_errors() {
        for (wanted, part) in [
            (&["z"][..], "no column 'z': there are id"),
            (&["!z"], "no column 'z'"),
            (&["a..z"], "no column 'z'"),
            (&["0..6"], "no column '6'"),
            (&["\"2\""], "no column '\"2\"'"),
            (&["+1"], "no column '+1'"),
            (&["0..2", "a"], "'a' is selected twice"),
            (&["b..a"], "'b..a' runs backwards"),
            (&["!0..5"], "no columns are left"),
            (&["a", "!a"], "no columns are left"),
            (&[], "no columns are left"),
        ] {
            let text = of(wanted).unwrap_err().to_string();
            assert!(text.contains(part), "{wanted:?}: {text}");
        }
        let twice = ["a", "a", "b"].map(str::to_owned);
        for wanted in ["a", "!a", "a..b", "\"a\""] {
            let text = find_columns(&[wanted], Some(&twice), 3).unwrap_err().to_string();
            assert!(text.contains("several columns are called 'a'"), "{text}");
        }
    }

    #[test]
    fn a_column_can_be_put_last_whether_or_not_it_was_chosen() {
        let of = |columns: Option<&[&str]>| {
            let columns = columns.map(|words| words.iter().map(|w| (*w).to_owned()).collect());
            let options = ReadOptions { columns, last: Some("a".to_owned()), ..ReadOptions::default() };
            options.choose(Some(&NAMES.map(str::to_owned)), NAMES.len(), (0..NAMES.len()).collect()).unwrap()
        };
        assert_eq!(of(None), [0, 1, 3, 4, 5, 2]);
        assert_eq!(of(Some(&["0..3"])), [0, 1, 3, 2]);
        assert_eq!(of(Some(&["id"])), [0, 2]);
        assert_eq!(of(Some(&["!id", "!a"])), [1, 3, 4, 5, 2]);
    }
}
