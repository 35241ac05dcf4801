//! What rests on an engine's threads, and so belongs to the process that made it.

use std::{mem, process};

/// Nothing yet, or something and the process that made it. A forked process makes its own: the threads of another's are not
/// there, so it can neither be used nor given back, and is left where it is.
pub(crate) struct PerProcess<T>(Option<(u32, T)>);

impl<T> PerProcess<T> {
    pub(crate) const fn empty() -> Self {
        Self(None)
    }

    /// This process's, made where there is none.
    ///
    /// # Errors
    /// What `make` says.
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
