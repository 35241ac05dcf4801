//! Numbers as they are read: in memory, or in a mapped temporary file if they exceed a limit.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use bytemuck::Pod;
use gmm_model::{Matrix, RowArray};
use ndarray::Array2;

use crate::mapped::MappedValues;
use crate::memory::Limit;
use crate::spill::Spilled;
use crate::table::Storage;
use crate::{Problem, memory, spill};

/// A type of numbers in a [`Store`].
pub(crate) trait Cell: Pod + Default + Send + Sync {}

impl<T: Pod + Default + Send + Sync> Cell for T {}

/// A growing list of values. Readers write to it as to a slice and need not know where it is.
pub(crate) struct Store<T> {
    cells: Cells<T>,
    limit: Limit,
    /// What the values are, for errors.
    what: &'static str,
}

enum Cells<T> {
    Memory(Vec<T>),
    Disk(Spilled<T>),
}

impl<T: Cell> Store<T> {
    pub(crate) const fn new(limit: Limit, what: &'static str) -> Self {
        Self { cells: Cells::Memory(Vec::new()), limit, what }
    }

    /// As many zeros. In memory, the system provides the pages when they are first written to.
    ///
    /// # Errors
    /// As [`reserve`](Self::reserve).
    pub(crate) fn zeros(count: usize, limit: Limit, what: &'static str) -> Result<Self, Problem> {
        let mut store = Self::new(limit, what);
        store.zeros_after(0, count)?;
        Ok(store)
    }

    /// A list of `values`, which are in memory already.
    pub(crate) const fn of_vec(values: Vec<T>, limit: Limit, what: &'static str) -> Self {
        Self { cells: Cells::Memory(values), limit, what }
    }

    /// Moves the first `used` values to a new list of that many and `more` values, the others 0 where they are in
    /// memory.
    fn zeros_after(&mut self, used: usize, more: usize) -> Result<(), Problem> {
        let count = used.saturating_add(more);
        if let Cells::Memory(values) = &self.cells
            && bytes::<T>(count) <= self.limit.fitting(0, bytes::<T>(count))
        {
            let mut zeros = memory::zeros(count, self.what)?;
            zeros[..used].copy_from_slice(&values[..used]);
            self.cells = Cells::Memory(zeros);
            return Ok(());
        }
        self.truncate(used);
        self.resize(count)
    }

    /// Checks that there is room for `count` values, without reserving it.
    ///
    /// # Errors
    /// As [`reserve`](Self::reserve).
    pub(crate) fn check(&self, count: usize) -> Result<(), Problem> {
        let wanted = bytes::<T>(count);
        if wanted <= self.limit.fitting(0, wanted) {
            return Ok(());
        }
        match self.limit {
            Limit::None => memory::check(self.what, wanted),
            Limit::Bytes(_) => spill::check(self.what, wanted),
            Limit::Half | Limit::Little => {
                spill::check(self.what, wanted).or_else(|problem| memory::check(self.what, wanted).map_err(|_| problem))
            }
        }
    }

    /// Reserves room for `more` values. The capacity doubles if memory or disk allows; else it grows by an eighth, and
    /// failing that by exactly `more`. If the limit does not allow even that, the values move to a temporary file.
    ///
    /// # Errors
    /// [`Problem::Memory`] or [`Problem::Disk`] if none of these fit. The values are unchanged then.
    pub(crate) fn reserve(&mut self, more: usize) -> Result<(), Problem> {
        let (len, what) = (self.len(), self.what);
        if self.capacity() - len >= more {
            return Ok(());
        }
        let capacities = || [len, len / 8, 0].into_iter().map(move |spare| len.saturating_add(more.max(spare)));
        let disk = match &mut self.cells {
            Cells::Disk(values) => return first_success(capacities(), |capacity| values.grow(capacity, what)),
            Cells::Memory(values) => {
                let largest = bytes::<T>(len.saturating_add(more.max(len)));
                let fits = self.limit.fitting(bytes::<T>(len), largest);
                for capacity in capacities().filter(|capacity| bytes::<T>(*capacity) <= fits) {
                    if values.try_reserve_exact(capacity - len).is_ok() {
                        return Ok(());
                    }
                }
                if matches!(self.limit, Limit::None) {
                    return memory::reserve(values, more, what);
                }
                first_success(capacities(), |capacity| Spilled::new(values, capacity, what))
            }
        };
        match (disk, &mut self.cells) {
            (Ok(disk), _) => {
                self.cells = Cells::Disk(disk);
                Ok(())
            }
            // Without a disk, memory that is free may be used up.
            (Err(problem), Cells::Memory(values)) if self.limit.can_be_exceeded() => {
                memory::reserve(values, more, what).map_err(|_| problem)
            }
            (Err(problem), _) => Err(problem),
        }
    }

    /// Sets the number of values. New values hold anything.
    ///
    /// # Errors
    /// As [`reserve`](Self::reserve).
    pub(crate) fn resize(&mut self, len: usize) -> Result<(), Problem> {
        self.reserve(len.saturating_sub(self.len()))?;
        match &mut self.cells {
            Cells::Memory(values) => values.resize(len, T::default()),
            Cells::Disk(values) => values.set_len(len),
        }
        Ok(())
    }

    /// Makes room for more values after the first `used`, which are kept: for `least`, and if there is too little of
    /// it, for `more`. The room belongs to the values, and holds anything.
    ///
    /// # Errors
    /// As [`reserve`](Self::reserve).
    pub(crate) fn make_room(&mut self, used: usize, least: usize, more: usize) -> Result<(), Problem> {
        if self.len() - used >= least {
            return Ok(());
        }
        // The few values so far are copied to memory that the system keeps zero, which costs nothing before it is
        // written.
        if used < more / 8 {
            return self.zeros_after(used, more);
        }
        self.truncate(used);
        self.resize(used.saturating_add(more))
    }

    /// Appends values.
    ///
    /// # Errors
    /// As [`reserve`](Self::reserve).
    pub(crate) fn extend_from_slice(&mut self, more: &[T]) -> Result<(), Problem> {
        self.reserve(more.len())?;
        match &mut self.cells {
            Cells::Memory(values) => values.extend_from_slice(more),
            Cells::Disk(values) => {
                let len = values.len();
                values.set_len(len + more.len());
                values[len..].copy_from_slice(more);
            }
        }
        Ok(())
    }

    /// Removes the values from `len` on.
    pub(crate) fn truncate(&mut self, len: usize) {
        match &mut self.cells {
            Cells::Memory(values) => values.truncate(len),
            Cells::Disk(values) => values.set_len(len.min(values.len())),
        }
    }

    pub(crate) fn capacity(&self) -> usize {
        match &self.cells {
            Cells::Memory(values) => values.capacity(),
            Cells::Disk(values) => values.capacity(),
        }
    }

    /// Whether the values are in a temporary file.
    #[cfg(test)]
    pub(crate) const fn is_on_disk(&self) -> bool {
        matches!(self.cells, Cells::Disk(_))
    }

    /// The values in memory, a copy if they are in a file.
    pub(crate) fn into_vec(self) -> Vec<T> {
        match self.cells {
            Cells::Memory(values) => values,
            Cells::Disk(values) => values.to_vec(),
        }
    }

    /// The values as the owner of a map, and where they are; spare room is given back.
    ///
    /// # Errors
    /// Any error of the system.
    pub(crate) fn into_rows(self, (n, d): (usize, usize)) -> Result<(RowArray<T>, Storage), Problem> {
        let wrong = || Problem::Corrupt(format!("shape {:?} is too large", (n, d)));
        match self.cells {
            Cells::Memory(mut values) => {
                // Growth by doubling can leave up to half of the capacity unused.
                values.shrink_to_fit();
                let rows = Array2::from_shape_vec((n, d), values).map_err(|_| wrong())?;
                Ok((rows.into(), Storage::Memory))
            }
            Cells::Disk(values) => {
                let bytes = 0..values.len() * size_of::<T>();
                let map = MappedValues::<T>::new(values.finish()?, bytes).ok_or_else(wrong)?;
                let rows = RowArray::shared(Arc::new(map), (n, d)).map_err(|_| wrong())?;
                Ok((rows, Storage::TemporaryFile))
            }
        }
    }

    /// [`into_rows`](Self::into_rows), as a matrix of either precision.
    ///
    /// # Errors
    /// As [`into_rows`](Self::into_rows).
    pub(crate) fn into_matrix(self, shape: (usize, usize)) -> Result<(Matrix, Storage), Problem>
    where
        Matrix: From<RowArray<T>>,
    {
        self.into_rows(shape).map(|(rows, storage)| (rows.into(), storage))
    }
}

impl<T: Cell> Deref for Store<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match &self.cells {
            Cells::Memory(values) => values,
            Cells::Disk(values) => values,
        }
    }
}

impl<T: Cell> DerefMut for Store<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        match &mut self.cells {
            Cells::Memory(values) => values,
            Cells::Disk(values) => values,
        }
    }
}

impl<T: Cell> AsRef<[T]> for Store<T> {
    fn as_ref(&self) -> &[T] {
        self
    }
}

const fn bytes<T>(count: usize) -> u128 {
    count as u128 * size_of::<T>() as u128
}

/// The first result that is no error, else the last error.
fn first_success<T>(
    capacities: impl Iterator<Item = usize>,
    attempt: impl FnMut(usize) -> Result<T, Problem>,
) -> Result<T, Problem> {
    let mut last = None;
    for result in capacities.map(attempt) {
        match result {
            Ok(found) => return Ok(found),
            Err(problem) => last = Some(problem),
        }
    }
    Err(last.expect("an attempt"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fills a store with a limit of `limit` bytes step by step; it holds the same values wherever they are.
    fn check(limit: u64, total: usize, step: usize) {
        let mut store = Store::<f64>::new(Limit::of(Some(limit)), "the table");
        let all: Vec<f64> = (0..total).map(|i| i as f64).collect();
        all.chunks(step).for_each(|values| store.extend_from_slice(values).unwrap());
        assert_eq!(store.is_on_disk(), 8 * total as u64 > limit, "{limit} {total} {step}");
        assert_eq!(*store, *all);
        let (rows, storage) = store.into_rows((total, 1)).unwrap();
        assert_eq!(storage == Storage::TemporaryFile, 8 * total as u64 > limit);
        assert_eq!(rows.as_slice().unwrap(), all);
    }

    #[test]
    fn values_beyond_the_limit_go_to_a_file_and_stay_the_same() {
        for limit in [0, 8, 100, 4096, 80_000, 1 << 30] {
            for step in [1, 7, 4096] {
                check(limit, 10_001, step);
            }
        }
        check(0, 0, 1);
    }

    #[test]
    fn room_is_made_for_known_and_unknown_lengths() {
        for limit in [0, 1000, 1 << 20] {
            let mut store = Store::<f64>::zeros(3, Limit::of(Some(limit)), "the table").unwrap();
            store.copy_from_slice(&[1.0, 2.0, 3.0]);
            for more in [5, 3000] {
                store.make_room(2, 4, more).unwrap();
                assert!(store.len() >= 6 && store[..2] == [1.0, 2.0]);
                assert_eq!(store.is_on_disk(), 8 * store.len() as u64 > limit);
            }
            store.truncate(2);
            assert_eq!(store.into_vec(), [1.0, 2.0]);
        }
    }

    #[test]
    fn more_than_the_disk_holds_is_refused_with_both_bytes() {
        let mut store = Store::<f64>::new(Limit::of(Some(8)), "the table");
        store.extend_from_slice(&[1.0, 2.0]).unwrap();
        let text = store.reserve(1 << 57).unwrap_err().to_string();
        assert!(
            text.contains("the table needs 1152921504606846992 bytes") && text.contains("are free there"),
            "{text}"
        );
        assert_eq!(*store, [1.0, 2.0]);
    }
}
