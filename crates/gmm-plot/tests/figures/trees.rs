//! Dendrograms and entropy plots.

use super::*;

/// The tree of a mixture's components by Runnalls' bound.
fn tree_of(k: usize) -> Tree {
    agglomerate(&made(k, 2, 10, CovarianceType::Full).0, PairDistance::Runnalls).unwrap()
}

fn dendrogram_of(tree: &Tree, count: usize) -> Result<Picture, Error> {
    let (title, note) = (format!("{} components", tree.n_components()), format!("cut at {count}"));
    dendrogram(&Dendrogram { tree, count, height: "sum of Runnalls' bounds, nats".to_owned(), title, note })
}

#[test]
fn dendrograms_of_few_and_many_components_are_drawn() {
    for (k, count) in [(2, 1), (2, 2), (6, 4), (40, 5), (130, 100), (400, 7)] {
        let tree = tree_of(k);
        let picture = dendrogram_of(&tree, count).unwrap();
        check(&format!("dendrogram-{k}-{count}"), &picture);
        assert_eq!(picture, dendrogram_of(&tree, count).unwrap());
    }
    let svg = dendrogram_of(&tree_of(6), 4).unwrap().svg().to_owned();
    assert!((0..6).all(|c| svg.contains(&format!(">{c}</text>"))), "every component has its number");
}

#[test]
fn trees_without_joins_or_finite_heights_are_refused() {
    assert!(matches!(dendrogram_of(&Tree::new(1), 1), Err(Error::Nothing(_))));
    let mut tree = Tree::new(2);
    tree.join(0, 1, 1.0, f64::INFINITY).unwrap();
    assert!(matches!(dendrogram_of(&tree, 1), Err(Error::Nothing(_))));
    assert!(matches!(dendrogram_of(&tree_of(3), 4), Err(Error::Columns(_))));
    let mut equal = Tree::new(3);
    equal.join(0, 1, 0.0, 0.0).unwrap();
    equal.join(0, 1, 0.0, 0.0).unwrap();
    check("dendrogram-of-equal-components", &dendrogram_of(&equal, 2).unwrap());
}

#[test]
fn entropy_plots_mark_the_number_of_clusters() {
    let of = |entropy: &[f64], count: usize, elbow: usize| {
        let (title, note) = ("Entropy of the assignments".to_owned(), format!("elbow at {elbow} clusters (ringed)"));
        gmm_plot::entropy(&Entropy { entropy, count, elbow, title, note })
    };
    // ex4.1 of Baudry et al. 2010.
    let picture = of(&[122.219, 40.897, 4.731, 1.041, 1.3e-6, 0.0], 4, 4).unwrap();
    check("entropy", &picture);
    assert_eq!(picture.svg().matches("<ellipse").count(), 1);
    check("entropy-2", &of(&[3.0, 0.0], 2, 2).unwrap());
    check("entropy-of-nothing", &of(&[0.0; 5], 1, 2).unwrap());
    let many: Vec<f64> = (0..300).rev().map(|i| 1e7 * f64::from(i).powi(2)).collect();
    check("entropy-300", &of(&many, 40, 40).unwrap());
    assert!(matches!(of(&[0.0], 1, 1), Err(Error::Nothing(_))));
    assert!(matches!(of(&[f64::NAN, 0.0], 1, 1), Err(Error::Nothing(_))));
}
