//! Memory layouts shared by kernels and host: tiles of rows, panels of factors, flat statistics.

/// Rows per tile, which is also the threads per block.
pub const TILE_ROWS: u32 = 128;

/// Columns of a factor that a thread solves for together, in registers.
pub const PANEL: u32 = 8;

/// Number of tiles that hold `n` rows.
#[inline(always)]
pub const fn tiles(n: u64) -> u64 {
    n.div_ceil(TILE_ROWS as u64)
}

/// Length of a tiled `(n, columns)` matrix whose last tile is padded with zeros: `ceil(n/128)*128*columns`.
#[inline(always)]
pub const fn tiled_len(n: u64, columns: u32) -> u64 {
    tiles(n) * TILE_ROWS as u64 * columns as u64
}

/// Position of entry `(row, column)` of a tiled matrix: tile by tile, and column by column within a tile.
#[inline(always)]
pub const fn tiled_index(row: u64, column: u32, columns: u32) -> u64 {
    let rows = TILE_ROWS as u64;
    (row / rows * columns as u64 + column as u64) * rows + row % rows
}

/// Length of a packed lower triangle: `d*(d+1)/2`.
#[inline(always)]
pub const fn packed_len(d: u32) -> u64 {
    d as u64 * (d as u64 + 1) / 2
}

/// Position of entry `(i, j)`, `j <= i`, in a triangle packed row by row.
#[inline(always)]
pub const fn packed_index(i: u32, j: u32) -> u64 {
    packed_len(i) + j as u64
}

/// Length of a factor stored in panels: `64*p*(p+1)/2` with `p = ceil(d/8)`.
///
/// Panel `q` holds rows `8q..8q+8` of the lower factor. Its columns `0..8q+8` follow one another with 8 numbers each,
/// so that a thread that solves for 8 unknowns at once reads 8 neighbouring numbers per known one. Diagonal entries are
/// stored as reciprocals. Rows and columns past `d` are those of the identity.
#[inline(always)]
pub const fn panel_len(d: u32) -> u64 {
    (PANEL * PANEL) as u64 * packed_len(d.div_ceil(PANEL))
}

/// Position of entry `(i, j)`, `j < 8*(i/8) + 8`, of a factor stored in panels.
#[inline(always)]
pub const fn panel_index(i: u32, j: u32) -> u64 {
    (PANEL * PANEL) as u64 * packed_len(i / PANEL) + (j * PANEL + i % PANEL) as u64
}

/// The four covariance kinds, shared by kernels and host, in the order of `gmm_model::CovarianceType::ALL`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One matrix per component.
    Full,
    /// One matrix shared by all components.
    Tied,
    /// One variance per component and dimension.
    Diag,
    /// One variance per component.
    Spherical,
}

/// Number of second moments in the statistics: `k*d*(d+1)/2`, `d*(d+1)/2`, `k*d` or `k`.
#[inline(always)]
pub const fn second_len(kind: Kind, k: u32, d: u32) -> u64 {
    match kind {
        Kind::Full => k as u64 * packed_len(d),
        Kind::Tied => packed_len(d),
        Kind::Diag => k as u64 * d as u64,
        Kind::Spherical => k as u64,
    }
}

/// Length of flat statistics: weights `(k,)`, first moments `(k, d)`, second moments, packed as in
/// `gmm_model::Statistics`.
#[inline(always)]
pub const fn statistics_len(kind: Kind, k: u32, d: u32) -> u64 {
    second_at(k, d) + second_len(kind, k, d)
}

/// Position of the first moments: after the weights, `k`.
#[inline(always)]
pub const fn first_at(k: u32) -> u64 {
    k as u64
}

/// Position of the second moments: `k + k*d`.
#[inline(always)]
pub const fn second_at(k: u32, d: u32) -> u64 {
    k as u64 + k as u64 * d as u64
}

/// Length of the factors that the E-step reads: panels for full and tied, reciprocal standard deviations otherwise.
#[inline(always)]
pub const fn factor_len(kind: Kind, k: u32, d: u32) -> u64 {
    match kind {
        Kind::Full => k as u64 * panel_len(d),
        Kind::Tied => panel_len(d),
        Kind::Diag | Kind::Spherical => second_len(kind, k, d),
    }
}
