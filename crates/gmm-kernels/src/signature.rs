//! A table of every kernel and its parameters.

use crate::em::simple::{e_step, moments};
use crate::kernel::{Arguments, Kernel};
use crate::layout::Kind;
use crate::log_likelihood::mixing;
use crate::seeding::{draw_next, draw_rows, lloyd, nearest, squared_distances};
use crate::{Real, deconvolution, em, many, probe, products, reduce, sort, tile, truncated};

/// An entry point of the PTX modules.
#[derive(Clone, Debug, PartialEq)]
pub struct Signature {
    /// Name of the entry point.
    pub name: &'static str,
    /// Whether it needs tensor cores or asynchronous copies; the Turing module has no such kernels.
    pub tensor_cores: bool,
    /// Whether it needs warpgroups; only the Hopper module has such kernels.
    pub warpgroups: bool,
    /// Names and types of the parameters, in order; `T` is the type that ends the kernel's name.
    pub parameters: &'static [(&'static str, &'static str)],
}

impl Signature {
    /// The oldest target with its instructions.
    pub fn oldest_target(&self) -> &'static str {
        match self {
            Self { warpgroups: true, .. } => "sm_90a",
            Self { tensor_cores: true, .. } => "sm_80",
            _ => "sm_75",
        }
    }
}

fn one<A: Arguments>(kernel: Kernel<A>) -> Signature {
    Signature { name: kernel.name, tensor_cores: false, warpgroups: false, parameters: A::PARAMETERS }
}

fn tensor(signature: Signature) -> Signature {
    Signature { tensor_cores: true, ..signature }
}

fn warpgroup(signature: Signature) -> Signature {
    Signature { warpgroups: true, ..tensor(signature) }
}

fn by_warpgroups(all: &mut Vec<Signature>) {
    use crate::em::wgmma::linear::{FEATURES, Linear, encode, features};
    all.push(warpgroup(one(features::wgmma_features())));
    all.push(warpgroup(one(encode::wgmma_encode())));
    for d in FEATURES {
        let of = Linear::of(Kind::Tied, 1, d).expect("a number of features");
        all.push(warpgroup(one(of.logs())));
        all.push(warpgroup(one(of.sums())));
    }
}

fn generic<T: Real>() -> Vec<Signature> {
    vec![
        one(tile::tile_from_f32::<T>()),
        one(tile::tile_from_f64::<T>()),
        one(tile::untile::<T>()),
        one(tile::pick::<T>()),
        one(e_step::full::<T>()),
        one(e_step::full_rows::<T>()),
        one(e_step::full_large::<T>()),
        one(e_step::tied::<T>()),
        one(e_step::tied_rows::<T>()),
        one(e_step::tied_large::<T>()),
        one(e_step::precision_full::<T>()),
        one(e_step::precision_full_rows::<T>()),
        one(e_step::precision_tied::<T>()),
        one(e_step::precision_tied_rows::<T>()),
        one(e_step::diag::<T>()),
        one(e_step::spherical::<T>()),
        one(moments::full::<T>()),
        one(moments::tied::<T>()),
        one(moments::diag::<T>()),
        one(moments::spherical::<T>()),
        one(nearest::nearest::<T>()),
        one(squared_distances::add_centre::<T>()),
        one(squared_distances::potentials_4::<T>()),
        one(squared_distances::potentials_8::<T>()),
        one(squared_distances::lower::<T>()),
        one(draw_next::draw_next::<T>()),
        one(draw_rows::draw_rows::<T>()),
        one(products::pack::pack_doubles::<T>()),
        one(products::finish::finish::<T>()),
        one(products::forms::forms::<T>()),
        one(products::select::select::<T>()),
    ]
}

fn large<T: Real>(all: &mut Vec<Signature>) {
    for family in [em::features::Family::Full, em::features::Family::Linear] {
        for at_once in em::chunked::double_precision::GROUPS {
            all.push(tensor(one(em::chunked::double_precision::densities::<T>(family, at_once))));
            all.push(tensor(one(em::chunked::double_precision::moments::<T>(family, at_once))));
        }
    }
    all.push(tensor(one(em::chunked::double_precision::norms::norms::<T>())));
    all.push(tensor(one(em::chunked::double_precision::largest::largest::<T>())));
    all.push(tensor(one(em::chunked::double_precision::trials::trials::<T>())));
}

fn halves(all: &mut Vec<Signature>) {
    use crate::em::chunked::half_precision::HalfPrecision;
    for heads in [false, true] {
        // Component counts that select each panel width; plain fp16 (`heads`) has no kernels for the narrowest.
        let few = if heads { None } else { Some(16) };
        for k in few.into_iter().chain([30, 64]) {
            let of = |kind: Kind, d: u32| HalfPrecision::of(kind, k, d, heads);
            // Dimensions that select each factor size.
            for d in [16, 32, 64] {
                all.push(tensor(one(of(Kind::Full, d).densities(d))));
            }
            all.push(tensor(one(of(Kind::Spherical, 64).densities(64))));
            for kind in [Kind::Full, Kind::Spherical] {
                all.push(tensor(one(of(kind, 64).moments())));
            }
            if (heads, k) == (false, 64) {
                all.push(tensor(one(of(Kind::Full, 65).moments())));
            }
        }
    }
    all.push(tensor(one(em::chunked::half_precision::scales::chunked_half_norms())));
    all.push(tensor(one(em::chunked::half_precision::scales::chunked_half_scales())));
    all.push(tensor(one(em::chunked::half_precision::encode::chunked_half_encode())));
}

fn full_by_warpgroups(all: &mut Vec<Signature>) {
    use crate::em::wgmma::full::{Full, columns_at_most};
    for heads in [true, false] {
        let of = |d: u32| Full::of(1, d, heads).expect("few columns");
        all.extend(
            [
                one(of(64).encode()),
                one(of(64).densities()),
                one(of(96).densities()),
                one(of(128).densities()),
                one(of(64).normalise()),
                one(of(64).moments()),
            ]
            .map(warpgroup),
        );
        if columns_at_most(heads) > 128 {
            all.push(warpgroup(one(of(columns_at_most(heads)).densities())));
        }
    }
}

fn scores<T: Real>(all: &mut Vec<Signature>) {
    use crate::log_likelihood::{Columns, Form, fixed_point, kernel, single_mixture};
    for form in Form::ALL {
        for columns in [Columns::Components, Columns::Mixtures] {
            all.push(tensor(one(kernel::<T>(form, columns))));
        }
    }
    if T::BYTES == 4 {
        all.extend([1, 2, 4, 8].map(|tiles| tensor(one(fixed_point::kernel(tiles, false)))));
        all.extend([1, 2, 4, 8].map(|tiles| warpgroup(one(fixed_point::kernel(tiles, true)))));
        all.extend(single_mixture::COLUMNS.map(|columns| tensor(one(single_mixture::kernel(columns)))));
    }
}

fn k_means_and_whitened<T: Real>(all: &mut Vec<Signature>) {
    all.extend([1, 2, 4].map(|at_once| tensor(one(lloyd::assign::kernel::<T>(at_once)))));
    for is_tied in [false, true] {
        let of = |d| e_step::whitened_kernel::<T>(is_tied, d).expect("few columns");
        all.extend([8, 16, 24, 32].map(|d| tensor(one(of(d)))));
    }
    all.push(tensor(one(lloyd::products::hard_products::<T>())));
    all.push(tensor(one(lloyd::sums::hard_sums::<T>())));
}

fn multiplication(all: &mut Vec<Signature>) {
    use products::{finish, multiply, pack, plain, scales};
    all.push(one(plain::multiply_plain()));
    let of_tensor_cores = [
        one(multiply::multiply_doubles()),
        one(multiply::multiply_halves()),
        one(multiply::multiply_heads()),
        one(scales::products_largest()),
        one(scales::products_scales()),
        one(pack::split_halves()),
        one(pack::split_heads()),
        one(finish::finish_halves()),
    ];
    all.extend(of_tensor_cores.map(tensor));
}

fn nearby(all: &mut Vec<Signature>) {
    use em::nearby::{Size, nearby_encode, nearby_gather, nearby_lists, nearby_pool, nearby_sums};
    let every_size = [nearby_encode(), nearby_gather(), nearby_lists(), nearby_sums(), nearby_pool()];
    all.extend(every_size.map(|kernel| tensor(one(kernel))));
    all.extend(Size::ALL.iter().flat_map(|size| [size.seed(), size.pass()]).map(|kernel| tensor(one(kernel))));
}

/// Returns the signature of every entry point, in the order of a pass.
pub fn signatures() -> Vec<Signature> {
    let mut all = generic::<f32>();
    all.extend(generic::<f64>());
    all.extend(em::fused::Instance::ALL.iter().map(|&v| tensor(one(em::fused::kernel(v)))));
    // Numbers of columns and components that select each partition.
    all.extend([(1, 1), (2, 7), (2, 64), (3, 1)].map(|(d, k)| {
        let cut = em::small_d::Partition::of(k, d).expect("few columns");
        tensor(one(em::small_d::kernel(cut)))
    }));
    nearby(&mut all);
    large::<f32>(&mut all);
    large::<f64>(&mut all);
    halves(&mut all);
    by_warpgroups(&mut all);
    full_by_warpgroups(&mut all);
    all.push(tensor(one(em::m_step::update())));
    all.push(tensor(one(em::m_step::update_wide())));
    all.push(tensor(one(em::m_step::bayes_update())));
    all.push(tensor(one(em::m_step::bayes_update_wide())));
    scores::<f32>(&mut all);
    scores::<f64>(&mut all);
    k_means_and_whitened::<f32>(&mut all);
    k_means_and_whitened::<f64>(&mut all);
    all.push(tensor(one(lloyd::centres::lloyd_move())));
    all.push(tensor(one(lloyd::centres::lloyd_settle())));
    all.push(tensor(one(lloyd::end::lloyd_end())));
    multiplication(&mut all);
    all.extend([
        one(reduce::reduce_partials()),
        one(reduce::reduce_scalars()),
        one(reduce::reduce_blocks()),
        one(reduce::reduce_many_blocks()),
        one(many::many_fits()),
        one(sort::sort_count()),
        one(sort::sort_scan()),
        one(sort::sort_place()),
        one(truncated::truncated_step()),
        one(truncated::truncated_starts()),
        one(truncated::truncated_sums()),
    ]);
    all.extend(deconvolution::Form::ALL.iter().map(|form| one(form.kernel())));
    all.push(one(deconvolution::deconvolution_factors()));
    all.push(one(mixing::mix_columns()));
    all.extend([one(probe::probe_words()), tensor(one(probe::probe_mma()))]);
    all
}
