//! Where things lie: tiles of rows, panels of factors, the flat statistics. Shared by kernels and host.

/// Rows in a tile, and threads in a block.
pub const TILE_ROWS: u32 = 128;

/// Columns of a factor that are solved for together, in registers.
pub const PANEL: u32 = 8;

/// Tiles that hold `n` rows.
#[inline(always)]
pub const fn tiles(n: u64) -> u64 {
    n.div_ceil(TILE_ROWS as u64)
}

/// Numbers in a tiled `(n, columns)` matrix, the last tile filled up with zeros: `ceil(n/128)*128*columns`.
#[inline(always)]
pub const fn tiled_len(n: u64, columns: u32) -> u64 {
    tiles(n) * TILE_ROWS as u64 * columns as u64
}

/// Position of entry `(row, column)` of a tiled matrix: tile by tile, in a tile column by column.
#[inline(always)]
pub const fn tiled_index(row: u64, column: u32, columns: u32) -> u64 {
    let rows = TILE_ROWS as u64;
    (row / rows * columns as u64 + column as u64) * rows + row % rows
}

/// Entries of a packed lower triangle: `d*(d+1)/2`.
#[inline(always)]
pub const fn packed_len(d: u32) -> u64 {
    d as u64 * (d as u64 + 1) / 2
}

/// Position of entry `(i, j)`, `j <= i`, in a triangle packed row by row.
#[inline(always)]
pub const fn packed_index(i: u32, j: u32) -> u64 {
    packed_len(i) + j as u64
}

/// Numbers in a factor laid out in panels: with `p = ceil(d/8)`, `64*p*(p+1)/2`.
///
/// Panel `q` holds rows `8q..8q+8` of the lower factor, its columns `0..8q+8` one after another with 8 numbers each, so
/// that a thread that solves for 8 unknowns at once reads 8 neighbours per known one. Diagonal entries are stored as
/// reciprocals; rows and columns past `d` are those of the identity.
#[inline(always)]
pub const fn panel_len(d: u32) -> u64 {
    (PANEL * PANEL) as u64 * packed_len(d.div_ceil(PANEL))
}

/// Position of entry `(i, j)`, `j < 8*(i/8) + 8`, of a factor in panels.
#[inline(always)]
pub const fn panel_index(i: u32, j: u32) -> u64 {
    (PANEL * PANEL) as u64 * packed_len(i / PANEL) + (j * PANEL + i % PANEL) as u64
}

/// The four covariance kinds as kernels and host name them; the order is that of `gmm_model::CovarianceType::ALL`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Own matrices.
    Full,
    /// One matrix.
    Tied,
    /// Own variances.
    Diag,
    /// One variance each.
    Spherical,
}

/// Second moments in the statistics: `k*d*(d+1)/2`, `d*(d+1)/2`, `k*d` or `k`.
#[inline(always)]
pub const fn second_len(kind: Kind, k: u32, d: u32) -> u64 {
    match kind {
        Kind::Full => k as u64 * packed_len(d),
        Kind::Tied => packed_len(d),
        Kind::Diag => k as u64 * d as u64,
        Kind::Spherical => k as u64,
    }
}

/// Numbers in flat statistics: weight `(k,)`, first `(k, d)`, second, in the packing of `gmm_model::Statistics`.
#[inline(always)]
pub const fn statistics_len(kind: Kind, k: u32, d: u32) -> u64 {
    second_at(k, d) + second_len(kind, k, d)
}

/// Where the first moments start: after the weights, `k`.
#[inline(always)]
pub const fn first_at(k: u32) -> u64 {
    k as u64
}

/// Where the second moments start: `k + k*d`.
#[inline(always)]
pub const fn second_at(k: u32, d: u32) -> u64 {
    k as u64 + k as u64 * d as u64
}

/// Numbers in the factors that the E-step reads: panels for full and tied, reciprocal standard deviations otherwise.
#[inline(always)]
pub const fn factor_len(kind: Kind, k: u32, d: u32) -> u64 {
    match kind {
        Kind::Full => k as u64 * panel_len(d),
        Kind::Tied => panel_len(d),
        Kind::Diag | Kind::Spherical => second_len(kind, k, d),
    }
}
