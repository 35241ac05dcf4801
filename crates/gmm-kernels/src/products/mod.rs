//! Products of matrices, `A Bᵀ` of `(m, k)` and `(n, k)`, and what is made of them without the host.
//!
//! Both factors are *packed* first ([`pack`]): into operands of the tensor cores, 512 bytes that hold 8 rows and some
//! columns, 16 bytes for each lane, so that a warp reads one without a conflict (of the left factor two hold 16 rows). 16
//! operands are a block of 128 rows, then come the next columns, so that all that a block of threads reads of a factor lies
//! one behind the other. Rows and columns past the end are zeros. [`Form`] says what the numbers become:
//! - `f64` as they are: sums of `f32` then lose nothing but a rounding at their end;
//! - two halves (f16) for each `f32`, head and tail, scaled by a power of two for each row (`scales`): three products for
//!   one, taken out of the tensor cores (which round towards zero) after 32 terms and out of `f32` after [`SLICE`];
//! - the head alone.
//!
//! `multiply`, or [`plain`] without tensor cores, leaves sums, one for each slice of the terms, from which [`finish`] makes
//! the product, [`forms`] quadratic forms or squared norms, and [`select`] the largest of a row. Nothing is added in an
//! order that depends on timing.

pub mod finish;
pub mod forms;
#[cfg(any(not(target_arch = "nvptx64"), feature = "sm_80"))]
pub mod multiply;
pub mod pack;
pub mod plain;
#[cfg(any(not(target_arch = "nvptx64"), feature = "sm_80"))]
pub mod scales;
pub mod select;
mod share;

/// Rows of a block, of either factor.
pub const BLOCK: u32 = 128;

/// Words of an operand.
pub const OPERAND: u32 = 128;

/// Rows of an operand.
pub const OPERAND_ROWS: u32 = 8;

/// Operands of a block's rows.
pub const OPERANDS: u32 = BLOCK / OPERAND_ROWS;

/// Operands along the columns that are multiplied at a time: their number is a multiple of it.
pub const STEPS: u32 = 2;

/// Terms of which halves are added up in `f32`, at most: then come `f64`.
pub const SLICE: u64 = 4096;

/// What numbers become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `f64`.
    Double,
    /// Two halves for each `f32`.
    Halves,
    /// One half for each `f32`.
    Heads,
}

impl Form {
    /// Columns of an operand.
    pub const fn columns(self) -> u32 {
        match self {
            Self::Double => 8,
            Self::Halves => 16,
            Self::Heads => 32,
        }
    }

    /// Operands along `k` columns.
    pub const fn steps(self, k: u64) -> u64 {
        k.div_ceil((STEPS * self.columns()) as u64) * STEPS as u64
    }

    /// Words of a packed `(rows, k)` matrix.
    pub const fn words(self, rows: u64, k: u64) -> u64 {
        blocks(rows) * self.steps(k) * (OPERANDS * OPERAND) as u64
    }
}

/// Blocks of `rows` rows.
pub const fn blocks(rows: u64) -> u64 {
    rows.div_ceil(BLOCK as u64)
}

/// Numbers that `multiply` leaves for each slice: of `(m, n)` filled up to blocks, row by row.
pub const fn sums_len(m: u64, n: u64) -> u64 {
    blocks(m) * blocks(n) * (BLOCK * BLOCK) as u64
}
