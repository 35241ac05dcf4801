//! The tests that run the program, as one test program: linked once. `cli_NAME.rs` tests a command, `bad_input_*.rs` what it
//! says about input that is wrong.

mod bad_input_files;
mod bad_input_messages;
mod bad_input_numbers;
mod bad_input_parameters;
mod bad_input_shape;
mod bad_input_text;
mod cli_adapt;
mod cli_bayes;
mod cli_bench;
mod cli_bootstrap;
mod cli_classify;
mod cli_convert;
mod cli_dp;
mod cli_fit;
mod cli_loglik;
mod cli_many;
mod cli_matmul;
mod cli_mcmc;
mod cli_measured;
mod cli_merge;
mod cli_missing;
mod cli_noise;
mod cli_online;
mod cli_outliers;
mod cli_outputs;
mod cli_pass;
mod cli_plot;
mod cli_process;
mod cli_regress;
mod cli_resume;
mod cli_rules;
mod cli_serve;
mod cli_signals;
mod cli_sources;
mod cli_use;
