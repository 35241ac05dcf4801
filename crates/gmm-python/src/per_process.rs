//! Values that depend on an engine's threads, and therefore belong to the process that created them.

use std::{mem, process};

/// A lazily created value and the id of the process that created it. A forked process creates its own value. The
/// parent's value can neither be used nor dropped there, because its threads do not exist in the child, so it is
/// leaked.
pub(crate) struct PerProcess<T>(Option<(u32, T)>);

impl<T> PerProcess<T> {
    pub(crate) const fn empty() -> Self {
        Self(None)
    }

    /// The value of this process, created by `make` if there is none.
    ///
    /// # Errors
    /// Errors if `make` does.
    pub(crate) fn get<E>(&mut self, make: impl FnOnce() -> Result<T, E>) -> Result<&mut T, E> {
        self.forget_others();
        let (_, own) = match &mut self.0 {
            Some(own) => own,
            none => none.insert((process::id(), make()?)),
        };
        Ok(own)
    }

    fn forget_others(&mut self) {
        if let Some(other) = self.0.take_if(|(process, _)| *process != process::id()) {
            mem::forget(other);
        }
    }
}

impl<T> Drop for PerProcess<T> {
    fn drop(&mut self) {
        self.forget_others();
    }
}
