//! Initialisation of EM: k-means++ ([`squared_distances`], [`draw_rows`], [`draw_next`]), hard assignments
//! ([`nearest`]) and Lloyd's iterations ([`lloyd`]).

pub mod draw_next;
pub mod draw_rows;
pub mod lloyd;
pub mod nearest;
pub mod squared_distances;
