//! Matrix products `A Bᵀ` of `(m, k)` and `(n, k)`, and what is computed from them on the device.
//!
//! Both factors are first *packed* ([`pack`]) into tensor-core operands: 512 bytes that hold 8 rows and some columns,
//! 16 bytes per lane, so that a warp reads one without bank conflicts. (In the left factor, two operands hold 16 rows.)
//! 16 operands are a block of 128 rows, followed by the next columns of the block, so that everything a thread block
//! reads of a factor is contiguous. Rows and columns past the end are zeros. [`Form`] selects the number format:
//! - `f64` unchanged: sums of `f32` data are then rounded only once, at the end;
//! - split fp16: two fp16 parts, hi and lo, for each `f32`, scaled by a power of two per row (`scales`). One product
//!   becomes three. Sums leave the tensor cores (which round towards zero) after 32 terms, and `f32` after [`SLICE`]
//!   terms;
//! - fp16: only the hi part.
//!
//! `multiply`, or [`plain`] without tensor cores, writes one sum for each slice of the terms. [`finish`] turns the sums
//! into the product, [`forms`] into quadratic forms or squared norms, and [`select`] finds the largest numbers of a
//! row. The order of additions never depends on timing.

pub mod finish;
pub mod forms;
pub mod multiply;
pub mod pack;
pub mod plain;
pub mod scales;
pub mod select;
mod share;

/// Rows of a block, in either factor.
pub const BLOCK: u32 = 128;

/// 32-bit words of an operand.
pub const OPERAND: u32 = 128;

/// Rows of an operand.
pub const OPERAND_ROWS: u32 = 8;

/// Operands that cover a block's rows.
pub const OPERANDS: u32 = BLOCK / OPERAND_ROWS;

/// Operands along the columns that are multiplied at a time; their number is padded to a multiple of this.
pub const STEPS: u32 = 2;

/// Most fp16 terms that are added up in `f32`; these sums are then added in `f64`.
pub const SLICE: u64 = 4096;

/// Number format of a packed matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `f64`.
    Double,
    /// hi and lo fp16 parts for each `f32`.
    HalfPrecision,
    /// The hi fp16 part of each `f32`.
    Heads,
}

impl Form {
    /// Columns per operand.
    pub const fn columns(self) -> u32 {
        match self {
            Self::Double => 8,
            Self::HalfPrecision => 16,
            Self::Heads => 32,
        }
    }

    /// Operands needed for `k` columns.
    pub const fn steps(self, k: u64) -> u64 {
        k.div_ceil((STEPS * self.columns()) as u64) * STEPS as u64
    }

    /// Length of a packed `(rows, k)` matrix, in 32-bit words.
    pub const fn words(self, rows: u64, k: u64) -> u64 {
        blocks(rows) * self.steps(k) * (OPERANDS * OPERAND) as u64
    }
}

/// Number of blocks that hold `rows` rows.
pub const fn blocks(rows: u64) -> u64 {
    rows.div_ceil(BLOCK as u64)
}

/// Numbers that `multiply` writes per slice: those of `(m, n)` padded to blocks, row-major.
pub const fn sums_len(m: u64, n: u64) -> u64 {
    blocks(m) * blocks(n) * (BLOCK * BLOCK) as u64
}
