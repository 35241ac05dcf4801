//! An HTML page under construction: headings, sentences, lists, tables and figures, without scripts or outside parts.

use std::fmt::Write as _;

use gmm_plot::Picture;
use gmm_plot::escaped;

/// The look of a report. Figures are drawn on white; in the dark their lightness is inverted and their hue kept.
const STYLE: &str = include_str!("report.css");

/// A page under construction.
pub(super) struct Page {
    title: String,
    body: String,
    figures: usize,
}

impl Page {
    pub(super) fn new(title: &str) -> Self {
        let title = escaped(title);
        Self { body: format!("<h1>{title}</h1>\n"), title, figures: 0 }
    }

    /// The complete document.
    pub(super) fn finish(self) -> String {
        let Self { title, body, .. } = self;
        format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" \
             content=\"width=device-width, initial-scale=1\">\n<meta http-equiv=\"Content-Security-Policy\" \
             content=\"default-src 'none'; style-src 'unsafe-inline'\">\n<title>{title}</title>\n<style>\n{STYLE}</style>\n\
             </head>\n<body>\n<main>\n{body}</main>\n</body>\n</html>\n"
        )
    }

    pub(super) fn heading(&mut self, text: &str) {
        let _ = writeln!(self.body, "<h2>{}</h2>", escaped(text));
    }

    pub(super) fn paragraph(&mut self, text: &str) {
        let _ = writeln!(self.body, "<p>{}</p>", escaped(text));
    }

    /// A list of sentences.
    pub(super) fn list(&mut self, sentences: &[String]) {
        self.body.push_str("<ul>\n");
        for text in sentences {
            let _ = writeln!(self.body, "<li>{}</li>", escaped(text));
        }
        self.body.push_str("</ul>\n");
    }

    /// Names and their values.
    pub(super) fn values(&mut self, values: &[(&str, String)]) {
        self.body.push_str("<dl>\n");
        for (name, value) in values {
            let _ = writeln!(self.body, "<dt>{}</dt><dd>{}</dd>", escaped(name), escaped(value));
        }
        self.body.push_str("</dl>\n");
    }

    /// A table; the first cell of each row is its heading. A wide table scrolls by itself.
    pub(super) fn table(&mut self, caption: &str, head: &[String], rows: &[Vec<String>]) {
        let caption = escaped(caption);
        let _ = write!(
            self.body,
            "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{caption}\">\n<table>\n\
             <caption>{caption}</caption>\n<thead><tr>"
        );
        for cell in head {
            let _ = write!(self.body, "<th scope=\"col\">{}</th>", escaped(cell));
        }
        self.body.push_str("</tr></thead>\n<tbody>\n");
        for row in rows {
            self.body.push_str("<tr>");
            for (i, cell) in row.iter().enumerate() {
                let cell = escaped(cell);
                let _ = match i {
                    0 => write!(self.body, "<th scope=\"row\">{cell}</th>"),
                    _ => write!(self.body, "<td>{cell}</td>"),
                };
            }
            self.body.push_str("</tr>\n");
        }
        self.body.push_str("</tbody>\n</table>\n</div>\n");
    }

    /// A figure; `name` says in words what it shows.
    pub(super) fn figure(&mut self, picture: &Picture, name: &str, caption: &str) {
        let svg = picture.inline(&format!("f{}", self.figures), name);
        self.figures += 1;
        let (name, caption) = (escaped(name), escaped(caption));
        let _ = writeln!(
            self.body,
            "<figure>\n<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{name}\">\n{svg}</div>\n\
             <figcaption>{caption}</figcaption>\n</figure>"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_leave_their_place() {
        let mut page = Page::new("</title><script>");
        page.table("a\"b", &["<b>".to_owned()], &[vec!["&".to_owned()]]);
        let text = page.finish();
        assert!(!text.contains("<script") && !text.contains("<b>") && !text.contains("a\"b"), "{text}");
        assert!(text.contains("<title>&lt;/title&gt;&lt;script&gt;</title>"));
    }
}
