# Links the imported targets <prefix>::* from archives, where those lie beside the
# shared libraries that the targets name. A small call runs through thousands of
# gRPC's and Protocol Buffers' functions, each of them once. Out of shared
# libraries these call each other by way of tables, and a function for each of
# gRPC's thread-local variables: a tenth of a small call's time.
#
# Not for Abseil, whose archives Debian builds for programs alone: a shared
# library of ours links it, too.
function(attnd_link_archives prefix)
  if(NOT ATTND_ARCHIVES)
    return()
  endif()
  get_property(targets DIRECTORY PROPERTY IMPORTED_TARGETS)
  list(FILTER targets INCLUDE REGEX "^${prefix}::")
  foreach(target IN LISTS targets)
    get_target_property(configurations ${target} IMPORTED_CONFIGURATIONS)
    set(properties IMPORTED_LOCATION)
    foreach(configuration IN LISTS configurations)
      list(APPEND properties IMPORTED_LOCATION_${configuration})
    endforeach()
    foreach(property IN LISTS properties)
      get_target_property(library ${target} ${property})
      string(REGEX REPLACE "\\.so[.0-9]*$" ".a" archive "${library}")
      if(EXISTS "${archive}")
        set_target_properties(${target} PROPERTIES ${property} "${archive}")
      endif()
    endforeach()
  endforeach()
endfunction()
