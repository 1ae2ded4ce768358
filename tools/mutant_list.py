"""The mutants of tools/mutants.py: small changes of the library that a unit test must notice.

Each is (group, module, text that stands there once, text in its place, tests that should fail). Tests are given
as for pytest, within the folder tests; a name with spaces stands in quotes. EQUIVALENT says of a mutant that
survives why it changes nothing that can be observed.
"""


def slow(case):
    "The test of one kind of layer against loops written out index by index."
    return f"'test_contracts.py::test_agrees_with_the_slow_loop[{case}]'"


def contract(test, case):
    return f"'test_attention_contracts.py::{test}[{case}]'"


DEFINITION = "test_pooling.py::test_means_and_counts_are_those_of_the_definition"
RESUMED = "'test_training.py::test_a_killed_run_goes_on_to_the_same_bits[7-1]'"
COUNTED = "test_cost.py::test_by_hand"
NO_MAP = "test_axial.py::test_a_kernel_without_its_map_agrees_with_the_map"
SHARE = "test_kronecker_attention.py::test_the_share_is_that_of_the_definition"
GAIN = "test_kronecker_attention.py::test_the_gain_multiplies_matrices_of_queries_and_keys_alone"
SCORES = "test_kronecker_attention.py::test_settings_of_the_scores_are_those_of_the_slow_loop"
TWIN = "test_ndlinear.py::test_result_and_gradients_are_those_of_the_dense_twin"
WAYS = "test_ndlinear.py::test_ways_change_nothing_but_time"
BOUND = "test_ndlinear.py::test_the_rule_leaves_the_given_sequence_where_that_saves_two_thirds_of_the_work"
PRODUCT = "test_tensor.py::test_mode_dot_gives_each_element_of_the_batch_its_matrix"
PUBLISHED = "test_data.py::test_published_splits"
STEPS_OF_RIVALS = "test_streams.py::test_steps_of_rivals_equal_the_whole"
STEPS = "'test_streams.py::test_steps_of_kronecker_attention_equal_the_whole[product-softmax-False]'"
REFUSED = ("test_training.py::test_another_model_data_task_or_setting_is_refused_before_anything_is_written")
SETTINGS = "test_models.py::test_wrong_settings_name_setting_value_and_what_is_allowed"

POOLING = [
    ("kronecker_attention", "(marginals(reduce(x, right,", "(marginals(reduce(x, left,", DEFINITION),
    ("kronecker_attention", "t = t.cumsum(c, dtype=more)", "t = t.flip(c).cumsum(c, dtype=more).flip(c)", DEFINITION),
    ("kronecker_attention", "if mask is None else mask[..., None].to(x.dtype)", "if True else None", DEFINITION),
    ("kronecker_attention", "(s / n.clamp(min=1))", "(s / n.clamp(min=2))", DEFINITION),
    ("kronecker_attention", "[prod(sizes) // max(n, 1) for n in sizes]", "[n for n in sizes]",
     "test_pooling.py::test_counts_without_a_mask_are_those_of_the_sizes"),
    ("kronecker_attention", "reduce(x, right, keepdim=True, dtype=more)", "reduce(x, right, keepdim=True)",
     "test_pooling.py::test_half_precision_is_summed_in_float32"),
    ("kronecker_attention", "found.append(wide(", "found.append((", "test_pooling.py::test_sums_are_float32_at_least"),
    ("variants", "wide(t) * _power(n, self.power)", "wide(t)", SCORES),
    ("variants", "(n > 0).to(t.dtype)", "(n > -1).to(t.dtype)",
     "test_kronecker_attention.py::test_an_empty_slice_has_no_part_in_what_the_others_share"),
    ("variants", "t if m in self.causal else", "t if False else", slow("causal product")),
]
MASKS = [
    ("door", "return x.masked_fill(~mask[..., None], 0.0), mask", "return x, mask",
     contract("test_padding_changes_nothing", "full")),
    ("attention", ".softmax(-1).masked_fill(~some, 0.0)", ".softmax(-1)",
     "test_attention.py::test_a_row_that_may_see_nothing_is_zero"),
    ("attention", "attn_mask=seen | ~some", "attn_mask=seen",
     "test_attention.py::test_a_row_that_may_see_nothing_is_zero "
     "test_attention_contracts.py::test_fully_masked_samples_have_finite_gradients"),
    ("attention", "t.masked_fill(~self.asking[:, None, :, None], 0.0)", "t", slow("full")),
    ("kernels", "(q @ k.mT).masked_fill(~seen, 0.0)", "(q @ k.mT).masked_fill(~seen, 1e-3)",
     "test_kernels.py::test_a_map_gives_nothing_to_what_is_not_seen"),
    ("kernels", "hide(self.phi(hide(k, 0.0)), 0.0)", "self.phi(hide(k, 0.0))", slow("full-linear")),
    ("kronecker_attention", "info.tiny ** (2 / (3 * order))", "info.tiny ** (1 / (3 * order))", SHARE),
    ("kronecker_attention", "else max(info.eps,", "else min(info.eps,", SHARE),
    ("kronecker_attention", "return (1 - share) * S + given * even", "return (1 - share) * S + given", SHARE),
    ("kronecker_attention", "given = share * first.sum(-1, keepdim=True)", "given = share",
     "test_kronecker_attention.py::test_rows_of_slices_that_hold_nothing_are_zero"),
    ("kronecker_attention", "else S.masked_fill(~asking, 0.0)", "else S",
     "test_kronecker_attention.py::test_rows_of_slices_that_hold_nothing_are_zero"),
    ("kronecker_attention", "(S[0].masked_fill(~asking, 0.0), S[1])", "S",
     "test_kronecker_attention.py::test_two_thin_factors_are_the_map_of_a_kernel"),
    ("kronecker_attention", "combine(whole, w.expand", "combine(maps, w.expand",
     "test_kronecker_attention.py::test_dropped_maps_are_divided_by_what_the_whole_ones_leave"),
    ("kronecker_attention", " | (weight == 0) ", " ",
     "test_kronecker_attention.py::test_a_map_without_any_weight_gives_zero"),
    ("kronecker_attention", "else taking.mT & earlier", "else earlier",
     "test_kronecker_attention.py::test_rows_of_slices_that_hold_nothing_are_zero"),
    ("axial", "None if t is None else into_batch(t[:, None, ..., None], group)[:, 0, :, 0]", "None", slow("axial")),
    ("axial", "valid[:, None, ..., None].to(t.dtype)", "torch.ones_like(valid)[:, None, ..., None].to(t.dtype)",
     slow("multiscale")),
    ("patches", "flatten(-2).any(-1)", "flatten(-2).all(-1)",
     "test_patches.py::test_a_patch_takes_part_if_one_of_its_positions_does"),
]
CAUSAL = [
    ("attention", ".tril()", ".triu()",
     "test_attention.py::test_later_values_must_be_finite_for_a_softmax_and_need_not_for_a_kernel"),
    ("attention", ".tril()", ".tril(-1)", slow("full causal")),
    ("kernels", "kv.cumsum(axis), z.cumsum(axis)", "kv.cumsum(axis - 1), z.cumsum(axis - 1)", NO_MAP),
    ("kernels", "kv, z = kv.cumsum(axis), z.cumsum(axis)", "kv, z = kv.cumsum(axis), z", NO_MAP),
    ("kernels", "[2 + m for m in seen.causal]", "[2 + m for m in range(c)]", NO_MAP),
    ("axial", "[i for i, m in enumerate(group) if m in self.causal]",
     "[i for i, m in enumerate(group) if i in self.causal]", slow("spatial")),
    ("kronecker_attention", ".tril() if causal", ".triu() if causal", slow("causal product")),
    ("kronecker_attention", ".movedim(-2, 2 + i)", ".movedim(-2, 2)", slow("two causal modes")),
    ("kronecker_attention", "mode - sum(c < mode for c in others)", "mode", slow("causal product")),
    ("kernels", "s0 * (c0 - c).exp()", "s0", "test_kernels.py::test_running_sums_carry_any_scale"),
    ("kernels", ".clamp(min=EMPTY)", "", "test_kernels.py::test_where_nothing_may_be_seen_the_result_is_zero"),
    ("kernels", "s, top = running_sums(s, top, axis)", "s = s.cumsum(axis)",
     "test_kernels.py::test_no_later_key_changes_an_earlier_output_by_a_bit"),
    ("kernels", "change is None and (seen is None or seen.shape[-2] == 1)", "change is None",
     "test_leaks.py::test_no_later_position_changes_an_earlier_output_by_a_bit"),
    ("kernels", "scores if bias is None else scores + bias, seen)", "scores if bias is None else scores + bias, None)",
     "test_leaks.py::test_no_later_position_changes_an_earlier_output_by_a_bit"),
]
ATTEND = [
    ("attention", "q.shape[-1] ** -0.5", "q.shape[-1] ** -0.25",
     "test_attention.py::test_scores_can_be_changed_for_each_pair"),
    ("kernels", "return over(q @ kv, q @ z)", "return over(q @ kv, z.sum(-2, keepdim=True))", NO_MAP),
    ("kernels", "total < torch.finfo(total.dtype).tiny, inf", "total < 0, inf",
     "test_kernels.py::test_features_may_be_zero_for_a_key_or_for_all"),
    ("kernels", "t.shape[-1] ** -0.25 for t in both", "t.shape[-1] ** -0.5 for t in both",
     "test_attention.py::test_any_function_of_one_tensor_is_a_kernel"),
    ("attention", "self.dropout * self.training", "self.dropout",
     "test_attention_contracts.py::test_dropout_acts_in_training_only"),
    ("attention", "with full_precision(q):\n        scores", "with nullcontext():\n        scores",
     "test_attention_attacks.py::test_autocast_leaves_scores_in_full_precision"),
    ("attention", "t.movedim(1, -2).flatten(-2)", "t.movedim(1, -1).flatten(-2)", slow("full")),
    ("attention", "self.to_k, self.norm_k", "self.to_k, self.norm_q", slow("full causal")),
    ("attention", "with full_precision(v):\n            y = S", "with nullcontext():\n            y = S",
     "test_attention.py::test_maps_that_are_formed_keep_their_precision_under_autocast"),
    ("door", "(x.dtype == torch.float64) != (f.weight.dtype == torch.float64)", "False",
     "test_attention.py::test_what_is_no_input_is_refused_with_a_way_out"),
    ("door", "int(c) % int(order)", "c % order",
     "test_attention.py::test_numbers_of_numpy_are_taken_like_those_of_python"),
    ("positions", "self.rotary(t.movedim(axis, -2), m, *own)", "self.rotary(t.movedim(axis, -2), i, *own)", slow("spatial")),
    ("axial", "return total / self.count(x, mask, c, taking)", "return total", slow("axial")),
    ("axial", "z = norm(x + added)", "z = norm(x)", slow("divided")),
]
KERNELS = [
    ("kernels", "x.square().sum(-1, keepdim=True) / 2", "x.square().sum(-1, keepdim=True)",
     "test_kernels.py::test_log_features_are_those_of_the_formula"),
    ("kernels", "log(len(omega)) / 2", "log(len(omega))",
     "test_kernels.py::test_log_features_are_those_of_the_formula"),
    ("kernels", "dim ** 0.5 if regularized", "dim if regularized",
     "test_kernels.py::test_directions_have_their_lengths"),
    ("kernels", "Q * R.diagonal(dim1=-2, dim2=-1).sign()[:, None, :]", "Q",
     "test_kernels.py::test_directions_of_one_feature_point_both_ways"),
    ("kernels", "hide(self.phi.logarithms(hide(k, 0.0)), -inf)", "hide(self.phi.logarithms(hide(k, 0.0)), 0)",
     "test_attention_attacks.py::test_padding_does_not_set_the_scale_of_a_kernel"),
    ("kernels", "top = peak(b, (-2,))", "top = peak(b, (-2, -1))",
     "test_kernels.py::test_a_pair_of_features_has_normalizers_of_at_least_one"),
    ("kernels", "a = a + top\n", "a = a\n", "test_kernels.py::test_scaling_leaves_the_map_as_it_is"),
    ("kernels", "F.elu(t) + 1", "F.elu(t) + 2",
     "test_kernels.py::test_features_of_each_entry_are_those_of_their_names"),
    ("kernels", "t.relu() + 1e-3", "t.relu()",
     "test_kernels.py::test_features_of_each_entry_are_those_of_their_names"),
    ("kernels", "z = k.sum(-2, keepdim=True)                                         # (…, 1, M)",
     "z = k.sum(-2, keepdim=True) + 1", "test_kernels.py::test_a_product_of_kernels_is_that_of_its_maps"),
    ("kernels", "scores if bias is None else scores + bias", "scores if bias is None else scores - bias",
     "test_leaks.py::test_a_scale_for_each_query_leaves_the_map_as_it_is"),
]
SEQUENCE = [
    ("tensor", "1 / max(d, 1) - 1 / max(h, 1)", "1 / max(h, 1) - 1 / max(d, 1)",
     "test_tensor.py::test_contraction_sequence_goes_by_the_difference_of_reciprocals"),
    ("tensor", "sum(key[s] <= key[m] for s in sequence)", "sum(key[s] < key[m] for s in sequence)",
     "test_tensor.py::test_contraction_sequence_goes_by_the_difference_of_reciprocals"),
    ("kronecker_attention", "[shape(part[0][1])[1] for", "[shape(part[-1][1])[0] for",
     "test_plan.py::test_no_other_plan_is_cheaper"),
    ("kronecker_attention", "plan[0] < best[0]", "plan[0] > best[0]",
     "test_plan.py::test_the_layer_takes_the_cheap_plan_of_a_kernel"),
    ("kronecker_attention", "_parts(m, maps[m], m in chosen)", "_parts(m, maps[m], False)",
     "test_plan.py::test_no_other_plan_is_cheaper"),
    ("kronecker_attention", "else S / len(maps)", "else S", slow("sum")),
    ("ndlinear", "cheapest = tuple(contraction_sequence(D, H))", "cheapest = tuple(contraction_sequence(H, D))", BOUND),
    ("ndlinear", "<= 3 * flops(D, H, cheapest)", "<= flops(D, H, cheapest)", BOUND),
    ("ndlinear", "own = each and ", "own = ", TWIN),
    ("ndlinear", "prod(sizes) * H[k]", "prod(sizes) * D[k]",
     "test_ndlinear.py::test_flops_are_what_torch_counts"),
]
BIASES = [
    ("ndlinear", "weights[k].sum(1)", "weights[k].mean(1)", WAYS),
    ("ndlinear", "for k in rest:", "for k in sorted(rest):", WAYS),
    ("ndlinear", "sum(H) - (len(H) - 1)", "sum(H)",
     "test_ndlinear.py::test_effective_dimension_is_the_rank_of_the_jacobian"),
    ("ndlinear", "kaiming_uniform_(W, a=1)", "kaiming_uniform_(W, a=5 ** 0.5)",
     "test_ndlinear.py::test_start_keeps_the_variance"),
    ("variants", "(1 - 1 / _power(n, self.power)) * f.bias", "(1 - _power(n, self.power)) * f.bias",
     slow("rsqrt after, shared")),
    ("variants", "(LateBias,) if options.get(\"bias\", True) else ()", "()",
     "test_kronecker_attention.py::test_presets_are_those_of_the_two_papers"),
    ("kronecker_attention", "gain: float = 4.0", "gain: float = 1.0",
     "test_kronecker_attention.py::test_where_nothing_is_said_there_is_a_norm_and_a_gain"),
    ("kronecker_attention", "if layer.dim == layer.heads and", "if False and",
     "test_kronecker_attention.py::test_a_norm_of_one_feature_is_refused"),
    ("model_config", "1 if \"model\" in settings else FORMAT", "FORMAT",
     "test_models.py::test_a_model_of_format_1_has_the_defaults_of_its_time"),
    ("model_config", "{\"qk_gain\": 1.0} if len(known)", "{} if len(known)",
     "test_models.py::test_a_model_of_format_1_has_the_defaults_of_its_time"),
    ("attention", "f.weight.mul_(gain)\n    return f", "f.weight.add_(0)\n    return f", GAIN),
    ("variants", "t * s.exp() for", "t * s for", SCORES),
    ("variants", "nn.init.zeros_(self.logit_scale)", "pass",
     "'test_kronecker_attention.py::test_weights_drawn_again_are_distributed_as_those_of_a_new_layer[everything]'"),
]
MODES = [
    ("tensor", "d, *before, *after).movedim(batch, axis)", "d, *before, *after).movedim(batch, -1)", PRODUCT),
    ("tensor", "A.unsqueeze(batch) @", "A @", PRODUCT),
    ("tensor", "d, *before, *after).movedim(batch, axis)", "d, *before, *after)", PRODUCT),
    ("tensor", "reshape(*before, *after, d).movedim(-1, axis)", "reshape(*before, *after, d)",
     "test_tensor.py::test_multi_mode_dot_is_einsum"),
    ("tensor", "torch.baddbmm(bias[:, None], A, x)", "torch.bmm(A, x)",
     "test_tensor.py::test_mode_dot_starts_from_a_bias"),
    ("tensor", "axes if layout == \"row\" else axes[::-1]", "axes",
     "test_tensor.py::test_unfoldings_are_those_of_the_definition"),
    ("kronecker", "[A.shape[-1] for A in mats], [A.shape[-2] for A in mats]",
     "[A.shape[-2] for A in mats], [A.shape[-1] for A in mats]",
     "test_kronecker.py::test_the_cheapest_mode_is_multiplied_first"),
]
PATCHES = [
    ("patches", "for m in range(k) for half in (0, 1)", "for m in range(k) for half in (1, 0)",
     "test_patches.py::test_patches_come_apart_and_together"),
    ("patches", "for a in (0, end))", "for a in (end, 0))", "test_patches.py::test_what_fills_up_stands_at_the_end"),
    ("patches", "[-n % p for n, p", "[n % p for n, p", "test_patches.py::test_patches_come_apart_and_together"),
    ("patches", "(w - s + 1) // 2", "(w - s) // 2",
     "test_patches.py::test_padding_is_what_gives_one_output_for_each_stride"),
    ("patches", "max(width, s) if s > 1 else 1", "max(width, s)",
     "test_patches.py::test_padding_is_what_gives_one_output_for_each_stride"),
    ("patches", "x = x.masked_fill(~mask.unsqueeze(1), 0.0)", "x = x",
     "test_patches.py::test_what_is_masked_has_no_say_and_a_larger_frame_changes_nothing"),
    ("patches", "if mask is None and any(n % p", "if mask is None and not any(n % p",
     "test_patches.py::test_what_fills_up_takes_no_part"),
]
POSITIONS = [
    ("positions", "a * c - b * s", "a * c + b * s",
     "test_positions.py::test_rotary_scores_depend_on_the_difference_alone"),
    ("positions", "dtype=dtype) / planes)", "dtype=dtype) / dim)",
     "test_positions.py::test_frequencies_fall_from_one_by_equal_factors"),
    ("positions", "torch.full_like(i[-1:], n - 1)", "torch.full_like(i[-1:], n)",
     "test_positions.py::test_learned_tables_are_interpolated_with_ends_in_place"),
    ("positions", "planes // k + (i < planes % k)", "planes // k",
     "test_positions.py::test_planes_that_do_not_divide_evenly_are_all_given_away"),
    ("positions", "F.pad(own, (first, self.head_dim // 2 - first - count))",
     "F.pad(own, (0, self.head_dim // 2 - count))",
     "test_positions.py::test_axial_rotary_gives_each_mode_its_own_planes"),
]
SCALER = [
    ("data", "torch.std_mean(x, dim=0, correction=0)", "torch.std_mean(x, dim=0, correction=1)",
     "test_data.py::test_scaler"),
    ("data", "torch.where(std > 1e-12 * mean.abs(), std, 1.0)", "std", "test_data.py::test_scaler"),
    ("data", "Scaler.fit(series.values[:train], None", "Scaler.fit(series.values, None", PUBLISHED),
    ("data", "torch.where(mask.reshape(x.shape), x, torch.nan)", "x",
     "test_data.py::test_a_scaler_leaves_out_what_the_mask_hides"),
    ("data", "Scaler.fit(scene.values[region == 0])", "Scaler.fit(scene.values[region >= 0])",
     "test_scenes.py::test_scenes_are_scaled_by_their_training_pixels"),
    ("data", "Scaler.fit(x[parts[0]])", "Scaler.fit(x)",
     "test_scenes.py::test_images_are_scaled_by_those_of_the_training"),
    ("volumes", "images.flatten(0, 3) if mask is None else images[mask]", "images.flatten(0, 3)", "test_volumes.py"),
]
SPLITS = [
    ("data", "train, test = n * 7 // 10", "train, test = n * 6 // 10", PUBLISHED),
    ("data", "1 if split == \"ETTh\" else 4", "1", PUBLISHED),
    ("data", "zip((0, train - lookback,", "zip((0, train - lookback + 1,", PUBLISHED),
    ("data", "val - horizon + 1, test - horizon + 1", "val - lookback - horizon + 1, test - horizon + 1", PUBLISHED),
    ("data", "return both[:, :T], both[:, T:]", "return both[:, -T:], both[:, :-T]", PUBLISHED),
    ("data", "holes[lookback + horizon:] == holes[lookback:len(holes) - horizon]",
     "holes[lookback + horizon:] == holes[:len(holes) - lookback - horizon]",
     "test_data.py::test_windows_with_a_mask_have_known_targets"),
    ("data", "stride if i == 0 else window)", "stride)", "test_scenes.py::test_windows_overlap_in_training_alone"),
    ("scenes", "2 * gap + 1, stride=1, padding=gap", "2 * gap - 1, stride=1, padding=gap - 1",
     "test_scenes.py::test_windows_of_parts_share_no_pixel"),
    ("scenes", "near & (region == 0)", "near & (region == 1)", "test_scenes.py::test_windows_of_parts_share_no_pixel"),
    ("scenes", ".flatten(2).all(-1)", ".flatten(2).any(-1)", "test_scenes.py::test_windows_of_parts_share_no_pixel"),
    ("scenes", "drawn[uneven.argmin()]", "drawn[uneven.argmax()]",
     "test_scenes.py::test_blocks_are_drawn_so_that_classes_are_shared_out_evenly"),
]
CHECKS = [
    ("series", "missing = ~(np.abs(values) <= ABSURD)", "missing = np.abs(values) > ABSURD", "test_series.py"),
    ("series", "bad = missing | (values == -9999)", "bad = missing", "test_series.py"),
    ("series", "back = np.flatnonzero(steps < 0)", "back = np.flatnonzero(steps < -86400)",
     "test_series.py::test_time_that_does_not_go_forward"),
    ("series", "np.maximum(np.maximum.accumulate(row), first)", "np.maximum(row, first)",
     "test_series.py::test_a_hole_gets_the_last_value_before_it_and_at_the_start_the_first"),
    ("files", "if verify and source.checksum and (came :=", "if not verify and source.checksum and (came :=",
     "test_files.py::test_a_changed_official_file_is_refused_unless_nothing_is_compared"),
    ("files", "if checksum and (came := check_sum(part, checksum)):",
     "if False and (came := check_sum(part, checksum)):",
     "test_files.py"),
    ("files", "wrong = ~np.isfinite(array)", "wrong = np.isnan(array)",
     "test_files.py::test_infinity_in_half_precision_is_no_number"),
    ("data", "indices.ndim == 1 and indices.dtype == torch.int64", "indices.ndim == 1",
     "test_data.py::test_parts_on_a_device"),
]
RESUME = [
    ("training", "manual_seed(1_000_003 * seed + epoch)", "manual_seed(seed + epoch)",
     "test_training.py::test_the_order_of_the_data_is_that_of_seed_and_epoch"),
    ("training", "manual_seed(1_000_003 * seed + epoch)", "manual_seed(1_000_003 * seed)",
     "test_training.py::test_the_order_of_the_data_is_that_of_seed_and_epoch"),
    ("training", "config.drop_last)[seen:]:", "config.drop_last):", RESUMED),
    ("training", "run.state = RunState(**state)", "run.state = RunState()", RESUMED),
    ("training", "max(1 - self.decay, 1 / self.updates)", "1 - self.decay",
     "test_training.py::test_the_average_is_the_mean_at_first_and_exponential_later"),
    ("training", "devices.set_model_tensors(run.learner.model, runs.best_weights(folder))", "",
     "test_training.py::test_the_folder_holds_the_best_model_and_the_last_checkpoints"),
    ("training", "1 if task.best == \"min\" else -1", "1",
     "test_training.py::test_the_best_epoch_is_the_best_of_the_history"),
    ("training", "state.waited >= config.patience", "state.waited > config.patience",
     "test_training.py::test_it_stops_early"),
    ("training", "optimizer.zero_grad()", "", RESUMED),
    ("training", "batch[rank::world]", "batch[:]", "test_training.py::test_shares_of_all_processes_make_the_batch"),
    ("devices", "torch.set_rng_state(state[:n].cpu().clone())", "", RESUMED),
    ("devices", "learner.average.restart(learner.model, updates)", "learner.average.restart(learner.model)", RESUMED),
    ("devices", "    set_optimizer_tensors(learner.model,", "    0 and set_optimizer_tensors(learner.model,", RESUMED),
]
STORAGE = [
    ("storage", "part.unlink(missing_ok=True)", "pass",
     "test_models.py::test_a_save_that_fails_leaves_the_model_that_was_there"),
    ("storage", "path.resolve() if path.is_symlink() else path", "path", "test_predict.py::test_a_link_stays_a_link"),
    ("storage", "fcntl.LOCK_EX |", "fcntl.LOCK_SH |",
     "test_training.py::test_a_second_run_in_the_same_folder_at_once_is_refused"),
    ("runs", "dict.fromkeys([*old, *new])", "dict.fromkeys(old)", REFUSED),
    ("runs", "f\"{tuple(thing.shape)} {thing.dtype}\"", "f\"{thing.dtype}\"",
     "test_training.py::test_a_digest_of_contents_tells_everything_apart"),
    ("runs", "digest.update(f\"{key}=\".encode())", "pass",
     "test_training.py::test_a_digest_of_contents_tells_everything_apart"),
    ("runs", "self.paths()[:-self.keep]", "self.paths()[:-self.keep - 1]",
     "test_training.py::test_the_folder_holds_the_best_model_and_the_last_checkpoints"),
    ("runs", "if free < needed:", "if free < 0:",
     "test_training.py::test_an_unwritable_folder_and_a_full_disk_are_errors_before_training"),
    ("runs", "(\"model.safetensors\", \"config.json\", \"log.csv\")", "(\"config.json\", \"log.csv\")",
     "test_training.py::test_beginning_again_removes_the_former_best_model"),
    ("data", "f\"{thing.dtype} {tuple(thing.shape)}\"", "f\"{thing.dtype}\"",
     "test_data.py::test_a_digest_does_not_depend_on_the_last_digits"),
]
TASKS = [
    ("tasks", "ignore_index=ignore, reduction=\"sum\"", "reduction=\"sum\"",
     "test_tasks.py::test_labels_that_do_not_count_change_no_number"),
    ("tasks", "kept = target[target != ignore]", "kept = target.flatten()",
     "test_tasks.py::test_labels_that_do_not_count_change_no_number"),
    ("tasks", "n.sum() / ((n > 0).sum() *", "n.sum() / (len(n) *",
     "test_tasks.py::test_balanced_weights_leave_out_what_does_not_occur"),
    ("tasks", " * target.shape[1] / target[:, :h].shape[1]", "",
     "test_tasks.py::test_the_loss_of_separate_heads_is_the_mean_of_their_errors"),
    ("tasks", "torch.stack(each).mean()", "torch.stack(each).sum()",
     "test_tasks.py::test_the_loss_of_separate_heads_is_the_mean_of_their_errors"),
    ("tasks", "if h >= target.shape[1]]", "if h > target.shape[1]]",
     "test_tasks.py::test_a_short_target_is_judged_by_the_head_that_is_for_it"),
    ("tasks", "tuple(sorted(config.horizons))", "tuple(config.horizons)",
     "test_tasks.py::test_horizons_come_shortest_first"),
    ("tasks", "ratio = 2 * error", "ratio = error", "test_tasks.py::test_the_metrics_of_a_forecast_by_hand"),
    ("tasks", "target[kept] * self.classes + mean_scores(output, target).argmax(-1)[kept]",
     "target[kept] + self.classes * mean_scores(output, target).argmax(-1)[kept]",
     "test_tasks.py::test_counts_have_labels_for_rows_and_predictions_for_columns"),
]
SCHEDULE = [
    ("training", "return (step + 1) / (warmup + 1)", "return step / (warmup + 1)",
     "test_training.py::test_schedule_ends_near_zero_and_never_leaves_its_range"),
    ("training", "(step - warmup) / (steps - warmup)", "step / steps",
     "test_training.py::test_schedule_ends_near_zero_and_never_leaves_its_range"),
    ("training", "p.ndim < 2 or id(p) in inside", "p.ndim < 2",
     "test_training.py::test_norms_and_biases_do_not_decay"),
    ("training", "config.rate, betas=config.betas)", "config.rate)",
     "test_training.py::test_the_optimizer_takes_its_settings"),
    ("training", "math.inf if clip is None else clip)", "math.inf)", "test_training.py::test_gradients_are_clipped"),
    ("training", "group[\"lr\"] = rate * factor", "group[\"lr\"] = self.config.rate * factor",
     "test_training.py::test_the_schedule_keeps_the_rates_of_several_groups_apart"),
]
COST = [
    ("cost", "out_val=out) // 2", "out_val=out)", COUNTED),
    ("cost", "args[0].numel() - out.numel()", "args[0].numel()", COUNTED),
    ("cost", "args[1].shape[-2]", "args[0].shape[-2]",
     "test_cost.py::test_a_fused_kernel_is_charged_with_what_it_hides"),
    ("cost", " and \"backward\" not in name", "", "test_cost.py::test_a_fused_backward_pass_is_charged"),
    ("cost", "not in FREE", "in FREE", COUNTED),
    ("cost", "self.live -= size", "self.live -= 0", COUNTED),
    ("cost", "if made or func._schema.is_mutable", "if made", COUNTED),
    ("cost", "with self:", "with torch.no_grad():",
     "test_cost.py::test_gradients_and_inference_mode_do_not_change_the_arithmetic"),
    ("cost", "if masked else None", "if batch else None",
     "test_cost.py::test_kronecker_attention_costs_what_the_theorem_says"),
    ("cost", "\"_packed_params\"", "\"packed\"", "test_cost.py::test_quantized_layers"),
]
CONFIG = [
    ("config", "value >= least", "value > least", SETTINGS),
    ("config", "value < below", "value <= below", "test_training.py::test_settings_go_to_json_and_back"),
    ("config", "type(value) is not kind", "not isinstance(value, kind)",
     "test_models.py::test_settings_that_count_are_whole_numbers"),
    ("config", "not math.isfinite(value)", "math.isnan(value)", "test_training.py::test_settings_must_be_finite"),
    ("config", "list(known), 1, 0.5)", "list(known), 1, 1.0)", "test_training.py::test_settings_go_to_json_and_back"),
    ("model_config", "\"pool\": \"readout\", ", "", "test_models.py::test_old_rows_make_a_configuration_and_a_model"),
    ("model_config", "\"multiscale\": {\"pool\": \"windows\"}", "\"multiscale\": {}",
     "test_models.py::test_former_names_of_options_are_read"),
    ("model_config", "tuple(-(-n // p) for n, p", "tuple(n // p for n, p",
     "test_models.py::test_the_grid_counts_patches_that_begin"),
    ("model_config", "% 2 or width < 2 * pairs", "% 2", "test_models.py::test_heads_are_blamed_where_they_do_not_fit"),
    ("model_config", "len(set(found)) < len(found)", "False", "test_models.py::test_a_horizon_stands_once"),
    ("model_config", "if complete and missing:", "if False:",
     "test_models.py::test_damaged_settings_are_one_line_that_names_the_file"),
]
DELONG = "test_paired.py::test_delong_is_what_all_pairs_give"
ROWS = [
    ("paired", "np.cov(V) / p + np.cov(W) / q)", "np.cov(V) / q + np.cov(W) / p)", DELONG),
    ("paired", "return V.mean(0), 1 - W.mean(0)", "return V[0], 1 - W[0]",
     "test_paired.py::test_delong_of_several_runs_is_that_of_their_means"),
    ("paired", "- 2 * S[0, 1], 0.0", "- S[0, 1], 0.0", DELONG),
    ("paired", "count.cumsum() - (count - 1) / 2", "count.cumsum()", DELONG),
    ("paired", "np.arange(block)) % n", "np.arange(block) * 0) % n",
     "test_paired.py::test_blocks_keep_neighbors_together"),
    ("paired", "if key(new) not in there:", "if True:", "test_paired.py::test_a_row_that_is_there_keeps_its_scores"),
]
STREAMS = [
    ("streams", ".tril(all_ - new)", ".tril()", f"'{STEPS_OF_RIVALS}[full-softmax-False]'"),
    ("streams", "s = s + past[\"sums\"].unsqueeze(-3) if past else s", "s = s",
     f"'{STEPS_OF_RIVALS}[full-elu-False]'"),
    ("streams", "if taking is not None or \"taking\" in past:", "if taking is not None:",
     "'test_streams.py::test_streams_are_forked_dropped_and_restarted[softmax-full]'"),
    ("streams", "t.narrow(-3, int(bool(past)), a.shape[-3])", "t.narrow(-3, 0, a.shape[-3])",
     f"'{STEPS_OF_RIVALS}[full-random-False]'"),
    ("streams", "s + past[f\"{what}{m}\"].unsqueeze(1) if past else s", "s", STEPS),
    ("positions", "isinstance(start, int) or m not in self.causal", "True", STEPS),
    ("streams", "y, kept = (1 - share) * y + share * even * some, {**kept, **more}", "y, kept = y, {**kept, **more}",
     "test_streams.py::test_with_a_mask_sharp_maps_leave_the_same_weight"),
    ("streams", "t[rows] = EMPTY if name == \"scale\" else 0", "t[rows] = t[rows]",
     "'test_streams.py::test_streams_are_forked_dropped_and_restarted[elu-KroneckerAttention]'"),
    ("streams", "if device.type == \"mps\" else torch.float64", "if device.type == \"mps\" else torch.float32",
     "test_streams.py::test_sums_go_on_where_float32_would_stop"),
    ("streaming", "torch.cat([known.view", "torch.cat([~known.view",
     "'test_streams.py::test_models_step_as_a_whole[product-True]'"),
    ("streaming", "{c: (first, whole)}", "{c: (0, whole)}",
     "'test_streams.py::test_models_step_as_a_whole[product-False]'"),
    ("streams", "if mask is None and state.masked else mask", "if False else mask",
     "test_streams.py::test_what_cannot_be_stepped_says_so"),
]
NEAR = [
    ("names", "fixed = {\"combine\", \"groups\"}", "fixed = {\"combine\", \"groups\", \"qk_norm\"}",
     "test_transformer.py::test_options_that_are_not_there_are_refused"),
    ("names", "if not -order <= int(m) < order or", "if",
     "test_near.py::test_options_that_do_not_fit_are_refused"),
    ("streams", "some = (y != 0).any(-1, keepdim=True)", "some = y[..., -1:] > 0",
     "test_leaks.py::test_the_chunks_of_a_stream_are_the_whole"),
    ("axial", "x = merged(type(self).__name__, x, mask, self.order, self.dim)[0].reshape(x.shape)", "x = x",
     "test_attention_attacks.py::test_gradients_of_padding_are_zero_whatever_stands_there"),
    ("near", "(i - j).abs() <= size * dilation", "(i - j).abs() < size * dilation", slow("near product")),
    ("near", " & ((i - j) % dilation == 0)", "", slow("near product")),
    ("near", "score - alibi_slopes(", "score + alibi_slopes(", slow("near axial causal")),
    ("near", "self.first = 0 if causal else -reach", "self.first = -reach", slow("near causal sum")),
    ("kernels", "(bias - bias.amax(-1, keepdim=True)).exp()", "bias.exp()",
     "test_near.py::test_large_biases_do_not_overflow_a_kernel"),
    ("near", " * (S != 0).any(-1, keepdim=True)", "",
     "'test_near.py::test_mode_dropout_puts_the_identity_in_place_of_maps[True-product]'"),
    ("near", "torch.rand(len(S), device=S.device)", "torch.rand(1, device=S.device)",
     "test_near.py::test_mode_dropout_of_an_axis_draws_once_for_a_slice"),
    ("near", "at(n - q.shape[-2], n)[:, None]", "at(0, q.shape[-2])[:, None]",
     "'test_near.py::test_steps_with_windows_and_biases_equal_the_whole[product-softmax-False]'"),
    ("names", "span=None if window_ is None or callable(bias) else", "span=None if window_ is None else",
     "test_near.py::test_a_bias_handed_in_gets_true_positions"),
    ("streams", "new + old - span, span).clone()", "new + old - span, span)",
     "'test_near.py::test_with_a_window_the_state_grows_to_the_window_and_no_further[kronecker-softmax]'"),
    ("near", "seen = self.within(seen, q, k)\n        if self.score_mod", "if self.score_mod", slow("near axial")),
    ("streams", " or getattr(m, \"chance\", 0.0)", "", "test_near.py::test_steps_in_training_refuse_mode_dropout"),
    ("kronecker_attention", "weigh.within(seen, q, k) if hasattr(weigh, \"within\") else seen", "seen",
     "test_kronecker_attention.py::test_with_a_mask_no_weight_leaves_the_window"),
]
INTERVENED = "'test_maps.py::test_an_intervention_changes_what_it_names_and_leaves_the_model_as_it_was[product]'"
MAPS = [
    ("maps", "T = T.masked_fill(~seen, 0.0)", "T = T * 1.0",
     "test_maps.py::test_an_intervention_keeps_windows_causal_modes_and_gradients"),
    ("maps", "chosen[list(self.heads)] = True", "chosen[0] = True", INTERVENED),
    ("maps", "if mode in (None, m) else as_module(f)", "if True else as_module(f)",
     "test_maps.py::test_the_maps_of_another_sample_are_those_that_it_has"),
    ("maps", "for layer, weigh in zip(layers, former):", "for layer, weigh in zip(layers[:1], former):", INTERVENED),
]
SENT = "test_sharding.py::test_each_process_sends_what_the_formula_says_to_the_byte"
WHOLE = "test_sharding.py::test_parts_give_the_numbers_and_gradients_of_the_whole"
PARTS = [
    ("sharding", "found.append(2 * (p - 1) * t.nbytes / p)", "found.append((p - 1) * t.nbytes / p)", SENT),
    ("sharding", "ctx.both = transposed, function", "ctx.both = function, transposed", WHOLE),
    ("sharding", "[:, None, None] > cut.rank", "[:, None, None] >= cut.rank", WHOLE),
    ("sharding", "A.to(y.dtype).reshape(-1, *A", "A.to(y.dtype).mT.reshape(-1, *A", WHOLE),
    ("sharding", "if i != 1 + mode and len(set(values)) > 1:", "if i > 1 + mode and len(set(values)) > 1:",
     "test_sharding.py::test_processes_that_do_not_fit_together_say_so"),
]

GROUPS = {"pooling": POOLING, "masks": MASKS, "causal": CAUSAL, "attend": ATTEND, "kernels": KERNELS,
          "sequence": SEQUENCE, "biases": BIASES, "modes": MODES, "patches": PATCHES, "positions": POSITIONS,
          "scaler": SCALER, "splits": SPLITS, "checks": CHECKS, "resume": RESUME, "storage": STORAGE, "tasks": TASKS,
          "schedule": SCHEDULE, "costs": COST, "config": CONFIG, "rows": ROWS, "streams": STREAMS,
          "near": NEAR, "maps": MAPS, "parts": PARTS}
MUTANTS = [(group, *mutant) for group, found in GROUPS.items() for mutant in found]

EQUIVALENT = {
    ("attn_mask=seen | ~some", "attn_mask=seen"):
        "from 2.6 on, the oldest version that is allowed, torch itself gives zeros and finite gradients for a row of "
        "a boolean mask without any key, and the line below puts zeros there in any case; the text stands for "
        "kernels of other devices, which promise nothing for such rows",
}
