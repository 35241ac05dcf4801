//! R-hat and effective sample sizes against values of ArviZ, written by `golden/make.py`.

use gmm_mcmc::diagnostics::{ess_bulk, ess_tail, r_hat};
use serde_json::Value;

fn chains(case: &Value) -> Vec<Vec<f64>> {
    let numbers = |chain: &Value| chain.as_array().unwrap().iter().map(|v| v.as_f64().unwrap()).collect();
    case["chains"].as_array().unwrap().iter().map(numbers).collect()
}

fn of(chains: &[Vec<f64>], f: impl Fn(&[&[f64]]) -> f64) -> f64 {
    f(&chains.iter().map(Vec::as_slice).collect::<Vec<_>>())
}

#[test]
fn diagnostics_are_those_of_arviz() {
    let golden: Value = serde_json::from_str(include_str!("golden/diagnostics.json")).unwrap();
    let cases = golden.as_array().unwrap();
    assert_eq!(cases.len(), 11);
    for case in cases {
        let chains = chains(case);
        let found = [of(&chains, r_hat), of(&chains, ess_bulk), of(&chains, ess_tail)];
        for (found, name) in found.into_iter().zip(["r_hat", "ess_bulk", "ess_tail"]) {
            let Some(want) = case[name].as_f64() else {
                // ArviZ gives no R-hat for a single chain; this crate compares its halves.
                assert!((name, chains.len()) == ("r_hat", 1) && found > 0.99 && found < 1.2, "{found}");
                continue;
            };
            // Sums of a few hundred numbers of size 1, which ArviZ computes by Fourier transform.
            assert!((found - want).abs() <= 1e-9 * want, "{} {name}: {found}, want {want}", case["name"]);
        }
    }
}

#[test]
fn what_cannot_be_judged_is_no_number_and_a_constant_has_all_its_draws() {
    let constant = vec![vec![1.0; 20]; 3];
    assert!(of(&constant, r_hat).is_nan());
    assert_eq!((of(&constant, ess_bulk), of(&constant, ess_tail)), (60.0, 60.0));
    let short = vec![vec![1.0, 2.0, 3.0]; 2];
    let infinite = vec![vec![1.0, 2.0, 3.0, f64::INFINITY]; 2];
    let ragged = vec![vec![1.0, 2.0, 3.0, 4.0], vec![1.0; 5]];
    for chains in [short, infinite, ragged] {
        assert!(of(&chains, r_hat).is_nan() && of(&chains, ess_bulk).is_nan() && of(&chains, ess_tail).is_nan());
    }
    assert!(r_hat(&[]).is_nan());
}
