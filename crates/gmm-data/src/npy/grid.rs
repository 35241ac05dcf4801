//! Where the values of an npy file go in a matrix of the selected columns.

/// An `(n, d)` array, and the columns of it that are read into a row-major `(n, width)` matrix.
#[derive(Clone, Copy)]
pub(super) struct Grid<'a> {
    pub(super) n: usize,
    pub(super) d: usize,
    /// Whether the file stores column after column.
    pub(super) fortran: bool,
    /// The columns to read, in this order; `None` for all of them.
    pub(super) columns: Option<&'a [usize]>,
}

impl Grid<'_> {
    /// Number of columns of the matrix.
    pub(super) fn width(&self) -> usize {
        self.columns.map_or(self.d, <[usize]>::len)
    }

    /// Number of values of the matrix.
    pub(super) fn len(&self) -> usize {
        self.n * self.width()
    }

    /// Number of values of the matrix in those rows of which the file's first `count` values have a part.
    pub(super) fn end(&self, count: usize) -> usize {
        match self.columns {
            None => count,
            Some(columns) => count.div_ceil(self.d) * columns.len(),
        }
    }

    /// Copies the selected values of a block to `out`, `(.., width)`. The block begins with value `first` of the rows of
    /// `out`, and is in row-major order.
    pub(super) fn place<T: Copy>(&self, first: usize, block: &[T], out: &mut [T]) {
        let Some(columns) = self.columns else {
            out[first..first + block.len()].copy_from_slice(block);
            return;
        };
        for (slot, &column) in columns.iter().enumerate() {
            let skipped = (column + self.d - first % self.d) % self.d;
            let row = (first + skipped) / self.d;
            let values = block.get(skipped..).unwrap_or_default().iter().step_by(self.d);
            let slots = out.get_mut(row * columns.len() + slot..).unwrap_or_default();
            for (to, &value) in slots.iter_mut().step_by(columns.len()).zip(values) {
                *to = value;
            }
        }
    }

    /// Copies values of one column, from row `row` on, to the matrix' column `slot`.
    pub(super) fn place_column<T: Copy>(&self, row: usize, slot: usize, values: &[T], out: &mut [T]) {
        let width = self.width();
        for (to, &value) in out[row * width + slot..].iter_mut().step_by(width).zip(values) {
            *to = value;
        }
    }

    /// Splits a block in Fortran order, which begins with the file's value `first`, by columns. Calls `each` with the
    /// first row, the column and the values.
    pub(super) fn each_column<T>(&self, mut first: usize, mut block: &[T], mut each: impl FnMut(usize, usize, &[T])) {
        while !block.is_empty() {
            let (column, row) = (first / self.n, first % self.n);
            let (run, rest) = block.split_at(block.len().min(self.n - row));
            each(row, column, run);
            (first, block) = (first + run.len(), rest);
        }
    }

    /// The matrix' column of each of the array's.
    pub(super) fn slots(&self) -> Slots {
        Slots(self.columns.map(|columns| {
            let mut slots = vec![None; self.d];
            columns.iter().enumerate().for_each(|(slot, &column)| slots[column] = Some(slot));
            slots
        }))
    }
}

/// The matrix' column of each column of an array.
pub(super) struct Slots(Option<Vec<Option<usize>>>);

impl Slots {
    /// `None` if the column is not selected.
    pub(super) fn get(&self, column: usize) -> Option<usize> {
        match &self.0 {
            None => Some(column),
            Some(slots) => slots[column],
        }
    }
}
