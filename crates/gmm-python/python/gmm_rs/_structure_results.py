"""The results of :mod:`gmm_rs.structure`."""

from typing import NamedTuple

import numpy as np

from gmm_rs._given import index
from gmm_rs.exceptions import ParameterError


class Divergence(NamedTuple):
    """Kullback-Leibler divergence of one mixture from another, in nats.

    Attributes
    ----------
    variational : float
        Variational approximation (Hershey and Olsen 2007, eq. 20); exact for single components, but no bound.

    upper_bound : float
        Variational upper bound (section 8 there).

    monte_carlo : float
        Mean over draws.

    standard_error : float
        Standard error of that mean.
    """

    variational: float
    upper_bound: float
    monte_carlo: float
    standard_error: float


class Tree:
    """Tree of merges of the components of a mixture, from ``k`` clusters to one.

    Attributes
    ----------
    linkage : ndarray of shape (k - 1, 4)
        As for ``scipy.cluster.hierarchy``: the two joined nodes, the height, and the number of components below.

    values : ndarray of shape (k - 1,)
        The criterion of each join by itself.
    """

    def __init__(self, linkage, values, labels):
        self.linkage = linkage
        self.values = values
        self._labels = labels

    def clusters(self, count):
        """Return the cluster of each component when `count` clusters are left.

        Parameters
        ----------
        count : int
            Number of clusters, from 1 to k.

        Returns
        -------
        clusters : ndarray of shape (k,)
            Numbers from 0 on, in the order of the clusters' first components.
        """
        count = index(count, "count", 1)
        if count > len(self._labels):
            raise ParameterError(f"count is {count}: the mixture has {len(self._labels)} components")
        return self._labels[count - 1].copy()

    def __repr__(self):
        return f"Tree(<{len(self._labels)} components>)"


class Combination:
    """Components combined into clusters; the result of :func:`combine`.

    Attributes
    ----------
    n_clusters : int
        Number of clusters.

    clusters : ndarray of shape (k,)
        The cluster of each component.

    entropy : ndarray of shape (k,)
        Entropy of the assignments with k, k - 1, .., 1 clusters, in nats.

    joined_weight : ndarray of shape (k - 1,)
        Total weight of the rows that were assigned to one of the two clusters of each join.

    elbow : int
        Number of clusters at which two straight lines fit the entropies best.

    tree : Tree
        The tree of the combinations.
    """

    def __init__(self, found, count):
        self.tree = Tree(found["linkage"], found["values"], found["labels"])
        self.entropy = found["entropy"]
        self.joined_weight = found["joined_weight"]
        self.elbow = found["elbow"]
        self.n_clusters = count
        self.clusters = self.tree.clusters(count)

    def predict_proba(self, responsibilities):
        """Return the probabilities of the clusters.

        Parameters
        ----------
        responsibilities : array-like of shape (n, k)
            Those of the components, the result of ``predict_proba`` of the mixture; with noise (n, k + 1), the noise last.

        Returns
        -------
        proba : ndarray of shape (n, n_clusters)
            With noise (n, n_clusters + 1), the noise last.
        """
        responsibilities = np.asarray(responsibilities)
        k = len(self.clusters)
        if responsibilities.ndim != 2 or responsibilities.shape[1] not in (k, k + 1):
            raise ParameterError(f"responsibilities have shape {responsibilities.shape}: expected (n, {k})")
        proba = np.zeros((len(responsibilities), self.n_clusters), responsibilities.dtype)
        for component, cluster in enumerate(self.clusters):
            proba[:, cluster] += responsibilities[:, component]
        return np.hstack([proba, responsibilities[:, k:]])

    def predict(self, responsibilities):
        """Return the cluster of each row.

        Parameters
        ----------
        responsibilities : array-like of shape (n, k)
            As for :meth:`predict_proba`.

        Returns
        -------
        labels : ndarray of shape (n,)
            -1 for noise.
        """
        labels = self.predict_proba(responsibilities).argmax(axis=1)
        return np.where(labels == self.n_clusters, -1, labels)

    def __repr__(self):
        return f"Combination(<{len(self.clusters)} components in {self.n_clusters} clusters>)"
