//! The graph of lock orders: an edge from each held lock to each lock that was wanted meanwhile.
//!
//! Dependencies that differ only in other held locks make one edge. Only edges count that lie in a part of
//! the graph with a cycle, found by Tarjan's algorithm.

use rustc_hash::FxHashMap;

use super::{
    dependency::{Acquisition, Dependency, DependencyId},
    node::{Node, Nodes},
};

/// A lock was held at one site while another one was wanted at another site.
#[derive(Clone, Debug)]
pub(super) struct Edge {
    pub(super) held: Acquisition,
    pub(super) wanted: Acquisition,
    /// The dependencies with these acquisitions, and the place of the held one in each.
    pub(super) variants: Vec<(DependencyId, usize)>,
}

/// Returns the edges that can be part of a cycle, sorted by held lock, wanted lock, modes and sites.
pub(super) fn cyclic_edges(dependencies: &[Dependency], nodes: &Nodes<'_>) -> Vec<Edge> {
    let is_edge = |dependency: &Dependency, at: usize| {
        let (held, wanted) = (&dependency.held[at], &dependency.wanted);
        held.acquisition.node != wanted.acquisition.node && nodes.can_meet(held.lock, wanted.lock)
    };
    let pairs_of = |dependency: &Dependency| -> Vec<(Node, Node)> {
        let edges = (0..dependency.held.len()).filter(|at| is_edge(dependency, *at));
        edges.map(|at| (dependency.held[at].acquisition.node, dependency.wanted.acquisition.node)).collect()
    };
    let mut pairs: Vec<(Node, Node)> = dependencies.iter().flat_map(pairs_of).collect();
    pairs.sort_unstable();
    pairs.dedup();
    let components = components(&pairs);
    let is_cyclic = |from: Node, to: Node| {
        components.get(&from).is_some_and(|component| components.get(&to) == Some(component))
    };
    let mut edges: FxHashMap<(Acquisition, Acquisition), Vec<(DependencyId, usize)>> = FxHashMap::default();
    for (id, dependency) in (0..).zip(dependencies) {
        let wanted = dependency.wanted.acquisition;
        for at in (0..dependency.held.len()).filter(|at| is_edge(dependency, *at)) {
            let held = dependency.held[at].acquisition;
            if is_cyclic(held.node, wanted.node) {
                edges.entry((held, wanted)).or_default().push((id, at));
            }
        }
    }
    let edge = |((held, wanted), variants)| Edge { held, wanted, variants };
    let mut edges: Vec<Edge> = edges.into_iter().map(edge).collect();
    edges.sort_unstable_by_key(|edge| {
        let (held, wanted) = (edge.held, edge.wanted);
        (held.node, wanted.node, held, wanted)
    });
    edges
}

/// Returns the number of the strongly connected component of each node. `pairs` are the edges, sorted.
fn components(pairs: &[(Node, Node)]) -> FxHashMap<Node, usize> {
    let mut names: Vec<Node> = pairs.iter().flat_map(|(from, to)| [*from, *to]).collect();
    names.sort_unstable();
    names.dedup();
    let index: FxHashMap<Node, usize> = names.iter().copied().zip(0..).collect();
    let mut next: Vec<Vec<usize>> = vec![Vec::new(); names.len()];
    for (from, to) in pairs {
        next[index[from]].push(index[to]);
    }
    names.into_iter().zip(tarjan(&next)).collect()
}

/// Returns the component of each node by Tarjan's algorithm, without recursion: a chain of locks can be long.
fn tarjan(next: &[Vec<usize>]) -> Vec<usize> {
    const UNSEEN: usize = usize::MAX;
    let (mut order, mut low) = (vec![UNSEEN; next.len()], vec![UNSEEN; next.len()]);
    let mut component = vec![UNSEEN; next.len()];
    let (mut stack, mut seen, mut components) = (Vec::new(), 0, 0);
    for root in 0..next.len() {
        if order[root] != UNSEEN {
            continue;
        }
        // Each open node with the number of its edges that were followed.
        let mut open = vec![(root, 0)];
        while let Some((node, edge)) = open.last_mut() {
            let node = *node;
            if *edge == 0 {
                (order[node], low[node]) = (seen, seen);
                seen += 1;
                stack.push(node);
            }
            if let Some(to) = next[node].get(*edge).copied() {
                *edge += 1;
                if order[to] == UNSEEN {
                    open.push((to, 0));
                } else if component[to] == UNSEEN {
                    low[node] = low[node].min(order[to]);
                }
                continue;
            }
            open.pop();
            if let Some((before, _)) = open.last() {
                low[*before] = low[*before].min(low[node]);
            }
            if low[node] == order[node] {
                while let Some(member) = stack.pop() {
                    component[member] = components;
                    if member == node {
                        break;
                    }
                }
                components += 1;
            }
        }
    }
    component
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_that_reach_each_other_are_one_component() {
        // 0 -> 1 -> 2 -> 0, 2 -> 3 -> 4 -> 3, 5
        let next = [vec![1], vec![2], vec![0, 3], vec![4], vec![3], vec![]];
        let found = tarjan(&next);
        assert_eq!([found[0], found[1]], [found[2]; 2]);
        assert_eq!(found[3], found[4]);
        assert!(found[0] != found[3] && found[0] != found[5] && found[3] != found[5]);
    }

    #[test]
    fn a_long_chain_needs_no_deep_stack() {
        let next: Vec<Vec<usize>> = (1..=200_000).map(|to| vec![to % 200_000]).collect();
        assert!(tarjan(&next).iter().all(|component| *component == 0));
    }
}
