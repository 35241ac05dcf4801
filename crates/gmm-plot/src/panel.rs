//! A plotting area with axes: frame, grid, ticks, numbers and titles.

use crate::canvas::{Anchor, At, Canvas, Stroke, Text};
use crate::font;
use crate::scale::{Scale, Ticks};
use crate::style::{FRAME, GREY, GRID, SMALL, TEXT};

/// Space between the frame and the numbers.
const GAP: f64 = 7.0;

/// An axis: its scale and title.
#[derive(Clone, Debug)]
pub(crate) struct Axis {
    pub(crate) scale: Scale,
    /// Title with the unit; empty if a neighbouring panel shows it.
    pub(crate) title: String,
    /// Whether the ticks have numbers.
    pub(crate) numbers: bool,
}

impl Axis {
    pub(crate) fn new(scale: Scale, title: impl Into<String>) -> Self {
        Self { scale, title: title.into(), numbers: true }
    }

    /// An axis with ticks only; another panel shows the numbers and the title.
    pub(crate) const fn bare(scale: Scale) -> Self {
        Self { scale, title: String::new(), numbers: false }
    }
}

/// An area with axes.
#[derive(Clone, Debug)]
pub(crate) struct Panel {
    pub(crate) left: f64,
    pub(crate) top: f64,
    pub(crate) width: f64,
    pub(crate) height: f64,
    x: Axis,
    y: Axis,
    x_ticks: Ticks,
    y_ticks: Ticks,
}

/// Height of the numbers and the title below a panel.
pub(crate) const BELOW: f64 = GAP + SMALL + 6.0 + TEXT + 2.0;

/// Line spacing of an upright title.
const LINE: f64 = TEXT + 3.0;

/// Width of the numbers and the title to the left of a panel of this height.
pub(crate) fn beside(axis: &Axis, height: f64) -> f64 {
    let ticks = axis.scale.ticks(height, false);
    let widest = ticks.major.iter().map(|(_, label)| font::width(label, SMALL)).fold(0.0, f64::max);
    let lines = if axis.title.is_empty() { 0 } else { lines(&axis.title, &ticks.less, height).len() };
    GAP + widest + if lines == 0 { 0.0 } else { 8.0 + TEXT + LINE * (lines - 1) as f64 }
}

impl Panel {
    /// A panel that fits, including its numbers and titles, into a rectangle of this position and size.
    pub(crate) fn within((left, top): At, (width, height): At, x: Axis, y: Axis) -> Self {
        let below = if x.numbers { BELOW } else { 0.0 };
        let beside = beside(&y, height - below);
        Self::at((left + beside, top), (width - beside, height - below), x, y)
    }

    /// A panel whose frame has this position and size.
    pub(crate) fn at((left, top): At, (width, height): At, x: Axis, y: Axis) -> Self {
        let (x_ticks, y_ticks) = (x.scale.ticks(width, true), y.scale.ticks(height, false));
        Self { left, top, width, height, x, y, x_ticks, y_ticks }
    }

    /// Replaces the ticks of the horizontal axis, for example by whole numbers.
    pub(crate) fn with_x_ticks(mut self, ticks: Ticks) -> Self {
        self.x_ticks = ticks;
        self
    }

    /// Replaces the ticks of the vertical axis, possibly by none.
    pub(crate) fn with_y_ticks(mut self, ticks: Ticks) -> Self {
        self.y_ticks = ticks;
        self
    }

    /// Removes the numbers that reach more than 3 pixels beyond the frame, where they could overlap the next panel's.
    pub(crate) fn among_others(mut self) -> Self {
        const BEYOND: f64 = 3.0;
        let inside = |share: f64, length: f64, half: f64| {
            let at = share * length;
            at - half >= -BEYOND && at + half <= length + BEYOND
        };
        for (value, label) in &mut self.x_ticks.major {
            if !inside(self.x.scale.share(*value), self.width, font::width(label, SMALL) / 2.0) {
                label.clear();
            }
        }
        for (value, label) in &mut self.y_ticks.major {
            if !inside(self.y.scale.share(*value), self.height, SMALL / 2.0) {
                label.clear();
            }
        }
        self
    }

    pub(crate) const fn right(&self) -> f64 {
        self.left + self.width
    }

    pub(crate) const fn bottom(&self) -> f64 {
        self.top + self.height
    }

    /// The position of a pair of values in the picture.
    pub(crate) fn place(&self, x: f64, y: f64) -> At {
        (self.left + self.x.scale.share(x) * self.width, self.bottom() - self.y.scale.share(y) * self.height)
    }

    /// Draws the grid, which lies below the data.
    pub(crate) fn grid(&self, canvas: &mut Canvas) {
        let line = Stroke::new(GRID, 1.0);
        for (value, _) in &self.x_ticks.major {
            let (x, _) = self.place(*value, self.y.scale.ends().0);
            canvas.line((x, self.top), (x, self.bottom()), line);
        }
        for (value, _) in &self.y_ticks.major {
            let (_, y) = self.place(self.x.scale.ends().0, *value);
            canvas.line((self.left, y), (self.right(), y), line);
        }
    }

    /// Draws frame, ticks, numbers and titles, which lie above the data.
    pub(crate) fn axes(&self, canvas: &mut Canvas) {
        let frame = Stroke::new(FRAME, 1.0);
        canvas.rect((self.left, self.top), (self.width, self.height), "none", Some(frame));
        let number = Text::new(Anchor::Middle).colour(GREY);
        for (value, label) in &self.x_ticks.major {
            let (x, _) = self.place(*value, self.y.scale.ends().0);
            canvas.line((x, self.bottom()), (x, self.bottom() + 4.0), frame);
            if self.x.numbers && !label.is_empty() {
                canvas.text((x, self.bottom() + GAP + SMALL / 2.0), label, number);
            }
        }
        for value in &self.x_ticks.minor {
            let (x, _) = self.place(*value, self.y.scale.ends().0);
            canvas.line((x, self.bottom()), (x, self.bottom() + 2.0), frame);
        }
        for (value, label) in &self.y_ticks.major {
            let (_, y) = self.place(self.x.scale.ends().0, *value);
            canvas.line((self.left - 4.0, y), (self.left, y), frame);
            if self.y.numbers && !label.is_empty() {
                canvas.text((self.left - GAP, y), label, Text { anchor: Anchor::End, ..number });
            }
        }
        for value in &self.y_ticks.minor {
            let (_, y) = self.place(self.x.scale.ends().0, *value);
            canvas.line((self.left - 2.0, y), (self.left, y), frame);
        }
        self.titles(canvas);
    }

    fn titles(&self, canvas: &mut Canvas) {
        let title = Text::new(Anchor::Middle).size(TEXT);
        if !self.x.title.is_empty() {
            let at = (self.left + self.width / 2.0, self.bottom() + GAP + SMALL + 6.0 + TEXT / 2.0);
            canvas.text(at, &with(&self.x.title, &self.x_ticks.less, self.width), title);
        }
        if !self.y.title.is_empty() {
            let widest = self.y_ticks.major.iter().map(|(_, label)| font::width(label, SMALL)).fold(0.0, f64::max);
            // The last line is next to the numbers.
            for (i, line) in lines(&self.y.title, &self.y_ticks.less, self.height).iter().rev().enumerate() {
                let x = self.left - GAP - widest - 8.0 - TEXT / 2.0 - LINE * i as f64;
                canvas.text((x, self.top + self.height / 2.0), line, Text { upright: true, ..title });
            }
        }
    }
}

/// A title with the offset of its numbers ([`Ticks::less`]), on one line if both fit, else on two.
fn lines(title: &str, less: &str, most: f64) -> Vec<String> {
    if less.is_empty() || font::width(title, TEXT) + font::width(less, TEXT) <= most {
        return vec![with(title, less, most)];
    }
    vec![font::fitted(title, TEXT, most), font::fitted(less.trim_start(), TEXT, most)]
}

/// A title with the offset of its numbers; the title is shortened if both do not fit.
fn with(title: &str, less: &str, most: f64) -> String {
    font::fitted(title, TEXT, most - font::width(less, TEXT)) + less
}
