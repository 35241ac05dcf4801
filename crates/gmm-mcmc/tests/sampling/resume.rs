//! A run that is stopped, saved as bytes and resumed equals, to the bit, a run that was not stopped.

use std::ops::ControlFlow;

use gmm_mcmc::{
    Basis, Checkpoint, CovariancesPrior, Error, Event, MeansPrior, Options, Posterior, Prior, PriorOptions, Relabel,
    Run, Sampler, Target, WeightsPrior, fingerprint,
};
use gmm_model::{CovarianceType, Covariances, Dataset, Mixture, Precision};
use ndarray::array;

use crate::Case;

fn case() -> Case {
    let covariances = Covariances::Diag(array![[1.0, 2.0], [0.5, 1.0]]);
    let truth = Mixture::new(array![0.5, 0.5], array![[-2.0, 0.0], [2.0, 1.0]], covariances).unwrap();
    Case::of(&truth, 60, &PriorOptions::default())
}

/// The basis of a run of `case`.
fn basis(case: &Case) -> Basis {
    Basis { fingerprint: fingerprint(&case.data).unwrap(), precision: Precision::F64, engine: "cpu".to_owned() }
}

fn options(sampler: Sampler) -> Options {
    Options { sampler, chains: 3, draws: 90, warmup: 60, thin: 2, seed: 9, ..Options::new(sampler) }
}

/// A complete run that was stopped after each of these numbers of steps, and each time converted to bytes and read
/// back.
fn stopped_at(case: &mut Case, options: &Options, stops: &[usize]) -> Run {
    let mut run = case.run(options.clone());
    let basis = basis(case);
    for &stop in stops {
        let mut left = stop;
        let mut observer = |event: Event, _: &Run| {
            left -= usize::from(matches!(event, Event::Step { .. }) || options.sampler == Sampler::Rwm);
            if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let stopped = run.go_on(&mut case.likelihood, &case.target, &mut observer);
        assert!(matches!(stopped, Err(Error::Stopped)), "{stopped:?}");
        assert!(!run.is_complete());
        let bytes = Checkpoint::new(run, case.target.prior(), basis.clone()).to_bytes();
        run = Checkpoint::from_bytes(&bytes).unwrap().resume(options, &case.target, &basis).unwrap();
    }
    case.finish(&mut run);
    assert!(run.is_complete());
    run
}

#[test]
fn a_run_that_was_stopped_and_read_back_ends_in_the_same_bits() {
    for sampler in [Sampler::Rwm, Sampler::Nuts] {
        let (mut case, options) = (case(), options(sampler));
        let whole = stopped_at(&mut case, &options, &[]);
        assert_eq!(whole.chains.len(), 3);
        assert!(whole.chains.iter().all(|c| c.n_draws() == 90 && c.points.len() == 90 * case.target.dim()));
        assert!(whole.chains[0].points != whole.chains[1].points);
        // In the warm-up, between two draws, and in the middle of a segment.
        let stops: &[usize] = if sampler == Sampler::Rwm { &[31, 100, 200, 77] } else { &[50, 280, 260] };
        assert!(whole == stopped_at(&mut case, &options, stops), "{sampler:?}");
    }
}

#[test]
fn the_same_seed_gives_the_same_bits_and_another_seed_others() {
    for sampler in [Sampler::Rwm, Sampler::Nuts] {
        let draw = |seed: u64| {
            let mut case = case();
            let mut run = case.run(Options { seed, ..options(sampler) });
            case.finish(&mut run);
            run.chains
        };
        assert!(draw(1) == draw(1), "{sampler:?}");
        assert!(draw(1) != draw(2), "{sampler:?}");
    }
}

#[test]
fn a_finished_run_goes_on_to_more_draws_and_keeps_those_that_it_has() {
    for sampler in [Sampler::Rwm, Sampler::Nuts] {
        let (mut case, options) = (case(), options(sampler));
        let short = stopped_at(&mut case, &options, &[]);
        let basis = basis(&case);
        let more = Options { draws: 140, ..options };
        let checkpoint = Checkpoint::new(short.clone(), case.target.prior(), basis.clone());
        let mut long = checkpoint.resume(&more, &case.target, &basis).unwrap();
        case.finish(&mut long);
        for (short, long) in short.chains.iter().zip(&long.chains) {
            assert_eq!(long.n_draws(), 140);
            assert_eq!(long.points[..short.points.len()], short.points);
        }
        if sampler == Sampler::Rwm {
            let mut whole = case.run(more);
            case.finish(&mut whole);
            assert!(whole == long, "a random walk does not know how long it will be");
        }
    }
}

#[test]
fn a_checkpoint_of_another_run_is_refused_and_says_what_differs() {
    let (mut case, options) = (case(), options(Sampler::Rwm));
    let run = stopped_at(&mut case, &options, &[]);
    let basis = basis(&case);
    let checkpoint = Checkpoint::new(run, case.target.prior(), basis.clone());
    let refused = |options: &Options, target: &Target, basis: &Basis, part: &str| {
        let error = checkpoint.clone().resume(options, target, basis).unwrap_err().to_string();
        assert!(error.contains(part), "'{part}' is not in: {error}");
    };
    refused(&Options { seed: 10, ..options.clone() }, &case.target, &basis, "seed 9, not 10");
    refused(&Options { thin: 3, ..options.clone() }, &case.target, &basis, "thin 2, not 3");
    refused(&Options { sampler: Sampler::Nuts, ..options.clone() }, &case.target, &basis, "sampler rwm, not nuts");
    refused(&Options { draws: 89, ..options.clone() }, &case.target, &basis, "draws is 89: it must be at least 90");
    refused(&Options { chains: 2, ..options.clone() }, &case.target, &basis, "chains 3, not 2");
    let rows = Basis { fingerprint: basis.fingerprint + 1, ..basis.clone() };
    refused(&options, &case.target, &rows, "other rows");
    let single = Basis { precision: Precision::F32, ..basis.clone() };
    refused(&options, &case.target, &single, "precision f64, not f32");
    let with = |other: PriorOptions, kind: CovarianceType, k: usize| {
        Target::new(Prior::new(&other, kind, k, &case.data).unwrap()).unwrap()
    };
    let (diag, none) = (CovarianceType::Diag, PriorOptions::default);
    let weights = Some(WeightsPrior::Dirichlet { concentration: Some(3.0) });
    let means = Some(MeansPrior::Normal { mean: None, sd: Some(gmm_mcmc::PerColumn::All(7.0)) });
    let covariances = Some(CovariancesPrior::HalfNormal { scale: None });
    refused(&options, &with(PriorOptions { weights, ..none() }, diag, 2), &basis, "another prior of the weights: ");
    refused(&options, &with(PriorOptions { means, ..none() }, diag, 2), &basis, "another prior of the means: ");
    refused(&options, &with(PriorOptions { covariances, ..none() }, diag, 2), &basis, "prior of the covariances: ");
    refused(&options, &with(none(), diag, 3), &basis, "2 components, not 3");
    refused(&options, &with(none(), CovarianceType::Full, 2), &basis, "diag covariances, not full");

    // Another engine may continue the run, with a warning.
    let moved = Basis { engine: "cuda:0".to_owned(), ..basis.clone() };
    assert!(checkpoint.clone().resume(&options, &case.target, &moved).is_ok());
    assert_eq!(checkpoint.moved(&basis), None);
    let said = checkpoint.moved(&moved).unwrap();
    assert!(said.contains("engine cpu, not cuda:0"), "{said}");

    let bytes = checkpoint.to_bytes();
    assert_eq!(Checkpoint::from_bytes(&bytes).unwrap(), checkpoint);
    for end in [0, 7, 100, bytes.len() / 2, bytes.len() - 1] {
        assert!(matches!(Checkpoint::from_bytes(&bytes[..end]), Err(Error::Checkpoint(_))), "{end}");
    }
}

#[test]
fn a_checkpoint_of_an_earlier_version_says_so_and_bad_options_in_one_are_its_own_fault() {
    let (mut case, options) = (case(), options(Sampler::Rwm));
    let run = stopped_at(&mut case, &options, &[]);
    let bytes = Checkpoint::new(run, case.target.prior(), basis(&case)).to_bytes();
    let with = |from: &[u8], to: &[u8]| {
        let at = bytes.windows(from.len()).position(|here| here == from).expect("the header has it");
        let changed = [&bytes[..at], to, &bytes[at + from.len()..]].concat();
        match Checkpoint::from_bytes(&changed) {
            Err(Error::Checkpoint(why)) => why,
            other => panic!("{other:?}"),
        }
    };
    let why = with(br#"version\":3"#, br#"version\":1"#);
    assert!(why.contains("gmm-mcmc-checkpoint 1") && why.contains("start a new run"), "{why}");
    let why = with(br#"version\":3"#, br#"version\":4"#);
    assert!(why.contains("gmm-mcmc-checkpoint 4"), "{why}");
    let why = with(br#"thin\":2"#, br#"thin\":0"#);
    assert!(why.contains("thin is 0"), "{why}");
}

/// The checkpoint of `gmm mcmc -k 1 --covariance spherical --chains 1 --draws 4 --warmup 20 --seed 7 --device cpu` on
/// the rows below, written by a program with version 2.
const OLD: &[u8] = include_bytes!("../old/version2.checkpoint");

#[test]
fn a_checkpoint_without_energies_goes_on_and_its_draws_stay() {
    let data = Dataset::new(array![[0.5], [1.25], [-0.75], [2.0], [3.5]]).unwrap();
    let prior = Prior::new(&PriorOptions::default(), CovarianceType::Spherical, 1, &data).unwrap();
    let target = Target::new(prior).unwrap();
    let engine = gmm_host::CpuEngine::new(1).unwrap();
    let mut likelihood = gmm_host::Likelihood::new(&engine, &data, Precision::F64).unwrap();
    let basis = Basis::new(&engine, &data, Precision::F64).unwrap();
    let old = Checkpoint::from_bytes(OLD).unwrap();
    let options = Options { draws: 60, ..old.run.options.clone() };
    let kept = old.run.chains[0].clone();
    assert_eq!((kept.n_draws(), kept.steps), (4, 24));
    assert!(kept.stats.iter().all(|s| s.energy.is_none() && s.n_steps > 0 && s.step_size > 0.0));
    let energies = |run: &Run| {
        let stats = Posterior::new(run, &target, Relabel::None).unwrap().sample_stats();
        stats.iter().any(|(name, _)| name == "energy")
    };
    assert!(!energies(&old.run));
    let mut run = old.resume(&options, &target, &basis).unwrap();
    run.go_on(&mut likelihood, &target, &mut |_, _| ControlFlow::Continue(())).unwrap();
    assert_eq!(run.chains[0].n_draws(), 60);
    assert_eq!(run.chains[0].points[..kept.points.len()], kept.points);
    assert_eq!(run.chains[0].stats[..4], kept.stats);
    assert!(run.chains[0].stats[4..].iter().all(|s| s.energy.is_some_and(f64::is_finite)));
    // The first four draws have no energy, so the statistic is left out.
    assert!(!energies(&run));
    let bytes = Checkpoint::new(run.clone(), target.prior(), basis).to_bytes();
    assert!(Checkpoint::from_bytes(&bytes).unwrap().run == run);
}

#[test]
fn energies_are_of_the_hamiltonian_and_fall_and_rise_with_the_density() {
    let (mut case, options) = (case(), options(Sampler::Nuts));
    let run = stopped_at(&mut case, &options, &[]);
    let m = case.target.dim() as f64;
    for chain in &run.chains {
        // The energy above the negative log density is kinetic: half a chi-squared variable with m degrees of freedom.
        let kinetic: Vec<f64> = chain.stats.iter().map(|s| s.energy.unwrap() + s.lp).collect();
        let mean = kinetic.iter().sum::<f64>() / kinetic.len() as f64;
        assert!(kinetic.iter().all(|&k| k > 0.0), "{kinetic:?}");
        assert!((mean - m / 2.0).abs() < 5.0 * (m / 2.0 / kinetic.len() as f64).sqrt(), "{mean} {m}");
    }
    let mut walk = stopped_at(&mut case, &Options { sampler: Sampler::Rwm, ..options }, &[]);
    assert!(walk.chains.remove(0).stats.iter().all(|s| s.energy.is_none()));
}

#[test]
fn a_byte_that_is_another_is_an_error_or_does_not_matter() {
    for sampler in [Sampler::Rwm, Sampler::Nuts] {
        let mut case = case();
        let options = Options { chains: 1, draws: 3, warmup: 25, ..options(sampler) };
        let run = stopped_at(&mut case, &options, &[]);
        let basis = basis(&case);
        let checkpoint = Checkpoint::new(run, case.target.prior(), basis.clone());
        let bytes = checkpoint.to_bytes();
        let mut refused = 0;
        for at in 0..bytes.len() {
            let mut wrong = bytes.clone();
            wrong[at] ^= 1 << (at % 8);
            let read = Checkpoint::from_bytes(&wrong);
            let resumed = read.and_then(|c| c.resume(&options, &case.target, &basis));
            // Bytes that are still accepted for this run have the same numbers; only parts of the JSON may differ.
            match resumed {
                Err(_) => refused += 1,
                Ok(run) => assert!(run.chains == checkpoint.run.chains, "{sampler:?} {at}"),
            }
        }
        assert!(refused > bytes.len() * 9 / 10, "{refused} of {}", bytes.len());
    }
}

#[test]
fn a_fingerprint_tells_rows_and_weights_apart() {
    let one = Dataset::new(array![[1.0, 2.0], [3.0, 4.0]]).unwrap();
    let shape = Dataset::new(array![[1.0], [2.0], [3.0], [4.0]]).unwrap();
    let value = Dataset::new(array![[1.0, 2.0], [3.0, 5.0]]).unwrap();
    let order = Dataset::new(array![[3.0, 4.0], [1.0, 2.0]]).unwrap();
    let weights = one.clone().with_weights(vec![1.0, 2.0]).unwrap();
    let prints = [&one, &shape, &value, &order, &weights].map(|data| fingerprint(data).unwrap());
    (0..prints.len()).for_each(|i| assert!(!prints[..i].contains(&prints[i]), "{i}"));
    assert_eq!(prints[0], fingerprint(&Dataset::new(array![[1.0f32, 2.0], [3.0, 4.0]]).unwrap()).unwrap());
}
