//! Kaldi's text form of one mixture: `<DiagGMM>` (`gmm-global-copy --binary=false`) and `<FullGMM>`
//! (`fgmm-global-copy`).
//!
//! ```text
//! <DiagGMM>                                  <FullGMM>
//! <GCONSTS>  [ c_1 .. c_k ]                  <GCONSTS>  [ c_1 .. c_k ]
//! <WEIGHTS>  [ w_1 .. w_k ]                  <WEIGHTS>  [ w_1 .. w_k ]
//! <MEANS_INVVARS>  [ k lines: μ_j / σ²_j ]   <MEANS_INVCOVARS>  [ k lines: Σ⁻¹ μ ]
//! <INV_VARS>  [ k lines: 1 / σ²_j ]          <INV_COVARS> [ lower triangle of Σ⁻¹ ] of each component
//! </DiagGMM>                                 </FullGMM>
//! ```
//!
//! The constants `c = ln w + ln p(0)` are optional, and Kaldi computes them anew. Source of the form: `Read` and
//! `Write` in Kaldi's `gmm/diag-gmm.cc`, `gmm/full-gmm.cc` and `matrix/packed-matrix.cc`. Blanks and ends of lines are
//! where Kaldi writes them, so that scripts that read Kaldi's text by lines read ours.

use std::fmt::Write;

use gmm_model::{CovarianceType, Covariances, Mixture, ModelError, covariance_of_precision};
use ndarray::{Array1, Array2, Array3, ArrayView2, Axis};

use crate::error::{Fault, one_line};
use crate::{ModelFile, Problem};

/// Rounding of a weight in a text of six digits. Kaldi writes six or seven.
const TEXT_EPS: f64 = 5e-6;

/// Whether these are the first bytes of a mixture as text.
pub(in super::super) fn is_text(bytes: &[u8]) -> bool {
    let bytes = bytes.trim_ascii_start();
    bytes.starts_with(b"<DiagGMM") || bytes.starts_with(b"<FullGMM")
}

/// What to do about a file of Kaldi that is not one mixture as text; `None` if it is no file of Kaldi.
pub(in super::super) fn advice(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [b'\0', b'B', b'<', b'F', ..] => {
            Some("a binary file of Kaldi: write it as text with fgmm-global-copy --binary=false IN OUT")
        }
        [b'\0', b'B', b'<', ..] => {
            Some("a binary file of Kaldi: write it as text with gmm-global-copy --binary=false IN OUT")
        }
        _ if [&b"<TransitionModel>"[..], b"<DIMENSION>"].iter().any(|tag| bytes.starts_with(tag)) => {
            Some("an acoustic model of Kaldi, which has many mixtures: give a file with one (<DiagGMM> or <FullGMM>)")
        }
        _ => None,
    }
}

/// Reads a mixture. Weights are divided by their sum, which text of few digits rounds.
pub(in super::super) fn parse(bytes: &[u8]) -> Result<ModelFile, Fault> {
    let text =
        std::str::from_utf8(bytes).map_err(|e| Fault::corrupt(e.valid_up_to() as u64, "the text is not UTF-8"))?;
    let mut tokens = Tokens::new(text);
    let full = match tokens.next()? {
        "<DiagGMM>" | "<DiagGMMBegin>" => false,
        "<FullGMM>" | "<FullGMMBegin>" => true,
        other => return Err(tokens.unexpected(other, "<DiagGMM> or <FullGMM>")),
    };
    let (means, inverses, end) = match full {
        false => ("<MEANS_INVVARS>", "<INV_VARS>", ["</DiagGMM>", "<DiagGMMEnd>"]),
        true => ("<MEANS_INVCOVARS>", "<INV_COVARS>", ["</FullGMM>", "<FullGMMEnd>"]),
    };
    let mut tag = tokens.next()?;
    if tag == "<GCONSTS>" {
        tokens.rows("<GCONSTS>")?;
        tag = tokens.next()?;
    }
    if tag != "<WEIGHTS>" {
        return Err(tokens.unexpected(tag, "<WEIGHTS>"));
    }
    let weights = normalised(tokens.rows("<WEIGHTS>")?.concat(), &tokens)?;
    let k = weights.len();
    tokens.expect(means)?;
    let scaled_means = tokens.matrix(means, k)?;
    let d = scaled_means.ncols();
    tokens.expect(inverses)?;
    let (means, covariances) = if full {
        let (mut means, mut all) = (scaled_means, Vec::new());
        for (component, mut mean) in means.outer_iter_mut().enumerate() {
            let precision = tokens.triangle(inverses, d)?;
            let covariance = covariance_of_precision(precision.view()).map_err(|(column, pivot)| {
                let kind = CovarianceType::Full;
                tokens.fault(inverses, ModelError::NotPositiveDefinite { component, column, pivot, kind })
            })?;
            let unscaled = covariance.dot(&mean);
            mean.assign(&unscaled);
            all.extend(covariance);
        }
        (means, Covariances::Full(Array3::from_shape_vec((k, d, d), all).expect("k*d*d numbers")))
    } else {
        let precisions = tokens.matrix(inverses, k)?;
        if precisions.ncols() != d {
            let why = format!("{} columns, but {means} has {d}", precisions.ncols());
            return Err(tokens.fault(inverses, Problem::Field(why)));
        }
        (&scaled_means / &precisions, Covariances::Diag(precisions.mapv(f64::recip)))
    };
    let last = tokens.next()?;
    if !end.contains(&last) {
        return Err(tokens.unexpected(last, end[0]));
    }
    if let Ok(more) = tokens.next() {
        return Err(tokens.unexpected(more, "the end of the file, which may hold one mixture,"));
    }
    Ok(Mixture::new(weights, means, covariances).map_err(Problem::from)?.into())
}

/// The weights divided by their sum, if that is 1 up to the rounding of the text and of Kaldi's sums in f32.
fn normalised(weights: Vec<f64>, tokens: &Tokens<'_>) -> Result<Array1<f64>, Fault> {
    let (sum, k) = (weights.iter().sum::<f64>(), weights.len() as f64);
    if (sum - 1.0).abs() > TEXT_EPS + k * f64::from(f32::EPSILON) {
        return Err(tokens.fault("<WEIGHTS>", Problem::Field(format!("the weights sum to {sum}, not to 1"))));
    }
    Ok(weights.into_iter().map(|w| w / sum).collect())
}

/// The text of a mixture: of kind diag or spherical as `<DiagGMM>`, or of any kind as `<FullGMM>` if `full`.
///
/// # Errors
/// The reason, if the form cannot hold the mixture. Kaldi's numbers are f32, so all must be in its range.
pub(super) fn to_string(mixture: &Mixture, full: bool) -> Result<String, String> {
    let (scaled_means, inverses) = if full { dense(mixture)? } else { diagonal(mixture)? };
    check("scaled mean", &scaled_means, |v| v.is_finite())?;
    // Kaldi would read a smaller one as 0.
    if let Some(c) = mixture.weights().iter().position(|&w| w > 0.0 && (w as f32) == 0.0) {
        return Err(format!("the weight of component {c} is below the range of f32"));
    }
    let constant = |c: usize| {
        let at_zero = -0.5 * mixture.means().row(c).dot(&scaled_means.row(c));
        mixture.log_weight(c) + mixture.log_normalizer(c) + at_zero
    };
    let constants: Vec<f64> = (0..mixture.n_components()).map(constant).collect();
    let [kind, means_tag, inverses_tag] = match full {
        false => ["DiagGMM", "<MEANS_INVVARS>", "<INV_VARS>"],
        true => ["FullGMM", "<MEANS_INVCOVARS>", "<INV_COVARS>"],
    };
    let mut out = format!("<{kind}> \n");
    // Kaldi cannot read the infinite constant of a weight of 0.
    if constants.iter().all(|&v| (v as f32).is_finite()) {
        let _ = writeln!(out, "<GCONSTS>  [ {}]", numbers(&constants));
    }
    let _ = writeln!(out, "<WEIGHTS>  [ {}]", numbers(mixture.weights()));
    let _ = writeln!(out, "{means_tag}  [{}]", lines(scaled_means.view()));
    let _ = writeln!(out, "{inverses_tag} {inverses}</{kind}> ");
    Ok(out)
}

/// The means over the variances, `(k, d)`, and the text of the inverse variances.
fn diagonal(mixture: &Mixture) -> Result<(Array2<f64>, String), String> {
    let precisions = match mixture.covariances() {
        Covariances::Diag(all) => all.mapv(f64::recip),
        Covariances::Spherical(all) => Array2::from_shape_fn(mixture.means().dim(), |(c, _)| all[c].recip()),
        Covariances::Full(_) | Covariances::Tied(_) => {
            let kind = mixture.covariance_type();
            return Err(format!("<DiagGMM> has no {kind} covariances: write <FullGMM>, to a file *.ubm"));
        }
    };
    check("inverse variance", &precisions, |v| v.is_normal())?;
    Ok((&mixture.means() * &precisions, format!(" [{}]\n", lines(precisions.view()))))
}

/// The inverse covariances times the means, `(k, d)`, and the text of the inverse covariances.
fn dense(mixture: &Mixture) -> Result<(Array2<f64>, String), String> {
    let mut scaled_means = mixture.means().to_owned();
    let mut text = String::new();
    for (c, mut scaled) in scaled_means.outer_iter_mut().enumerate() {
        let covariance = match mixture.covariances() {
            Covariances::Full(all) => all.index_axis(Axis(0), c).to_owned(),
            Covariances::Tied(one) => one.clone(),
            Covariances::Diag(all) => Array2::from_diag(&all.row(c)),
            Covariances::Spherical(all) => Array2::from_diag_elem(scaled.len(), all[c]),
        };
        // The same function inverts in both directions.
        let precision = covariance_of_precision(covariance.view());
        let precision = precision.map_err(|_| format!("the covariance of component {c} cannot be inverted"))?;
        check("inverse variance", precision.diag(), |v| v.is_normal())?;
        check("inverse covariance", &precision, |v| v.is_finite())?;
        scaled.assign(&precision.dot(&mixture.means().row(c)));
        let rows = precision.outer_iter().enumerate().map(|(i, row)| numbers(row.iter().take(i + 1)));
        let _ = writeln!(text, "[\n{}]", rows.collect::<Vec<_>>().join("\n"));
    }
    Ok((scaled_means, text))
}

/// Checks numbers after rounding to f32.
fn check<'a>(what: &str, values: impl IntoIterator<Item = &'a f64>, fits: fn(f32) -> bool) -> Result<(), String> {
    match values.into_iter().find(|&&v| !fits(v as f32)) {
        None => Ok(()),
        Some(v) => {
            Err(format!("the {what} {v:e} exceeds the range of f32, which Kaldi's numbers have: rescale the data"))
        }
    }
}

/// Numbers in the shortest form that reads back as the same bits, each followed by a blank.
fn numbers<'a>(values: impl IntoIterator<Item = &'a f64>) -> String {
    values.into_iter().map(|v| format!("{} ", serde_json::Value::from(*v))).collect()
}

fn lines(a: ArrayView2<'_, f64>) -> String {
    a.outer_iter().map(|row| format!("\n  {}", numbers(row))).collect()
}

/// Words and brackets of a text, with their lines.
struct Tokens<'a> {
    rest: &'a str,
    /// The line of the last token, from 1.
    line: u64,
}

impl<'a> Tokens<'a> {
    const fn new(text: &'a str) -> Self {
        Self { rest: text, line: 1 }
    }

    fn next(&mut self) -> Result<&'a str, Fault> {
        let start = self.rest.find(|c: char| !c.is_ascii_whitespace()).unwrap_or(self.rest.len());
        self.line += self.rest[..start].bytes().filter(|&b| b == b'\n').count() as u64;
        self.rest = &self.rest[start..];
        let bracket = |c: char| matches!(c, '[' | ']' | ';');
        let end = match self.rest.chars().next() {
            None => return Err(self.fault("", Problem::Corrupt("the text ends here".to_owned()))),
            Some(c) if bracket(c) => 1,
            Some(_) => self.rest.find(|c: char| c.is_ascii_whitespace() || bracket(c)).unwrap_or(self.rest.len()),
        };
        let (token, rest) = self.rest.split_at(end);
        self.rest = rest;
        Ok(token)
    }

    fn expect(&mut self, wanted: &str) -> Result<(), Fault> {
        let found = self.next()?;
        if found == wanted { Ok(()) } else { Err(self.unexpected(found, wanted)) }
    }

    /// The numbers in brackets, in rows: a line, or what a semicolon ends. `field` is for messages.
    fn rows(&mut self, field: &str) -> Result<Vec<Vec<f64>>, Fault> {
        self.expect("[")?;
        let (mut rows, mut row, mut line) = (Vec::new(), Vec::new(), self.line);
        loop {
            let token = self.next()?;
            if matches!(token, "]" | ";") || self.line != line {
                line = self.line;
                if !row.is_empty() {
                    rows.push(std::mem::take(&mut row));
                }
            }
            match token {
                "]" => return Ok(rows),
                ";" => {}
                _ => row.push(self.number(token, field)?),
            }
        }
    }

    fn number(&self, token: &str, field: &str) -> Result<f64, Fault> {
        let wrong = |why: &str| self.fault(field, Problem::Field(format!("'{}' is not {why}", one_line(token))));
        let value: f64 = token.parse().map_err(|_| wrong("a number"))?;
        // Constants, which are not used, may be infinite.
        if value.is_finite() || field == "<GCONSTS>" { Ok(value) } else { Err(wrong("finite")) }
    }

    /// A matrix of `k` rows.
    fn matrix(&mut self, field: &str, k: usize) -> Result<Array2<f64>, Fault> {
        let rows = self.rows(field)?;
        let d = rows.first().map_or(0, Vec::len);
        if let Some((i, row)) = rows.iter().enumerate().find(|(_, row)| row.len() != d) {
            let why = format!("row {i} has {} numbers, but the rows before have {d}", row.len());
            return Err(self.fault(field, Problem::Field(why)));
        }
        if rows.len() != k {
            return Err(self.fault(field, Problem::Field(format!("{} rows, but there are {k} weights", rows.len()))));
        }
        Ok(Array2::from_shape_vec((k, d), rows.concat()).expect("k*d numbers"))
    }

    /// A symmetric matrix, `(d, d)`, of which the text has the lower triangle.
    fn triangle(&mut self, field: &str, d: usize) -> Result<Array2<f64>, Fault> {
        let values = self.rows(field)?.concat();
        let wanted = d * (d + 1) / 2;
        if values.len() != wanted {
            let why = format!("{} numbers, but the lower triangle of {d} columns has {wanted}", values.len());
            return Err(self.fault(field, Problem::Field(why)));
        }
        let at = |i: usize, j: usize| i * (i + 1) / 2 + j;
        Ok(Array2::from_shape_fn((d, d), |(i, j)| values[at(i.max(j), i.min(j))]))
    }

    fn unexpected(&self, found: &str, wanted: &str) -> Fault {
        self.fault("", Problem::Field(format!("'{}' where {wanted} should be", one_line(found))))
    }

    /// A fault at the last token, in a field if it has a name.
    fn fault(&self, field: &str, problem: impl Into<Problem>) -> Fault {
        let mut fault = Fault::from(problem.into());
        fault.place.line = Some(self.line);
        fault.place.field = (!field.is_empty()).then(|| field.to_owned());
        fault
    }
}
